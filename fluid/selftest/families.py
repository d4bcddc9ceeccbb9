"""The families of kernels of the selftest: arithmetic, reductions, products and images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations

from fluid import layers
from fluid.framework import Variable
from fluid.selftest.cases import Case, Shape

CUBE: tuple[Shape, Shape] = (5, 7, 37), (33, 41, 503)
"""Three axes of odd sizes: small, and more than 2 MiB of float32."""


def _pointwise() -> list[Case]:
    def chain(x: Variable, y: Variable) -> Variable:
        return layers.relu(layers.tanh(x * 0.5) + layers.sigmoid(y) - layers.exp(0.1 * x) / 3.0)

    def broadcast(x: Variable, row: Variable) -> Variable:
        return layers.elementwise_mul(layers.elementwise_add(x, row), row)

    def roots(x: Variable, y: Variable) -> Variable:
        return layers.sqrt(x) + layers.log(y) + layers.pow(x, 1.7) + layers.rsqrt(y)

    def clips(x: Variable, y: Variable) -> Variable:
        return layers.elementwise_max(layers.clip(x, -1.0, 0.7), layers.leaky_relu(y, 0.1))

    small, large = CUBE
    return [
        Case("chain", chain, (small, small), (large, large)),
        Case("roots", roots, (small, small), (large, large), positive=True),
        Case("clips", clips, (small, small), (large, large)),
        Case("broadcast", broadcast, (small, (1, 1, 37)), (large, (1, 1, 503))),
        Case("gelu", layers.gelu, (small,), (large,)),
        Case("erf", layers.erf, (small,), (large,)),
    ]


def _reductions() -> list[Case]:
    small, large = CUBE
    cases: list[Case] = []
    axes = [
        list(combination) for count in (1, 2, 3) for combination in combinations(range(3), count)
    ]
    for name in ("reduce_sum", "reduce_mean", "reduce_max"):
        layer = getattr(layers, name)
        cases += [Case(f"{name} over {a}", partial(layer, dim=a), (small,), (large,)) for a in axes]
    cases += [
        Case("reduce_min over [1]", partial(layers.reduce_min, dim=[1]), (small,), (large,)),
        Case("mean", layers.mean, (small,), (large,)),
        Case("row sums", partial(layers.reduce_sum, dim=[1]), ((5, 9),), ((3, 300001),)),
        Case("column sums", partial(layers.reduce_sum, dim=[0]), ((9, 5),), ((200001, 3),)),
    ]
    return cases


def _norms() -> list[Case]:
    image, images = (3, 5, 6, 7), (5, 32, 57, 61)
    rows, more = (6, 37), (513, 1031)
    return [
        Case("batch_norm", layers.batch_norm, (image,), (images,)),
        Case("layer_norm", layers.layer_norm, (rows,), (more,)),
        Case("group_norm", partial(layers.group_norm, groups=1), (image,), (images,)),
        Case("instance_norm", layers.instance_norm, (image,), (images,)),
        Case("l2_normalize", partial(layers.l2_normalize, axis=1), (rows,), (more,)),
    ]


def _products() -> list[Case]:
    def transposed(x: Variable, y: Variable) -> Variable:
        return layers.matmul(x, y, transpose_y=True)

    def dense(x: Variable) -> Variable:
        return layers.fc(layers.fc(x, 70, act="relu"), 10)

    return [
        Case("fc", dense, ((5, 37),), ((515, 1031),)),
        Case("matmul", layers.matmul, ((5, 7), (7, 19)), ((130, 515), (515, 259))),
        Case("matmul transposed", transposed, ((5, 7), (9, 7)), ((130, 515), (259, 515))),
        Case("batched", layers.matmul, ((2, 5, 7), (2, 7, 3)), ((6, 67, 129), (6, 129, 65))),
        Case("one column", layers.matmul, ((5, 7), (7, 1)), ((4099, 515), (515, 1))),
    ]


def _convolutions() -> list[Case]:
    def conv(
        x: Variable,
        filters: int,
        size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
    ) -> Variable:
        return layers.conv2d(x, filters, size, stride, padding, dilation, groups, act="relu")

    def depthwise(x: Variable, size: int, stride: int) -> Variable:
        channels = x.shape[1]
        padding = size // 2
        return layers.conv2d(x, channels, size, stride, padding, groups=channels)

    image, images = (2, 5, 9, 11), (2, 32, 55, 57)
    wide = (2, 16, 13, 13), (2, 64, 56, 56)
    return [
        Case("1x1", partial(conv, filters=7, size=1), (image,), (images,)),
        Case("3x3", partial(conv, filters=19, size=3, padding=1), (wide[0],), (wide[1],)),
        Case("3x3 stride 2", partial(conv, filters=7, size=3, stride=2), (image,), (images,)),
        Case("5x5 dilated", partial(conv, filters=7, size=5, dilation=2), (wide[0],), (images,)),
        Case("groups", partial(conv, filters=8, size=3, groups=4), (wide[0],), (wide[1],)),
        Case("depthwise 3x3", partial(depthwise, size=3, stride=1), (image,), (images,)),
        Case("depthwise 5x5 stride 2", partial(depthwise, size=5, stride=2), (image,), (images,)),
        Case(
            "transposed",
            partial(layers.conv2d_transpose, num_filters=6, filter_size=3, stride=2),
            (image,), (images,),
        ),
    ]  # fmt: skip


def _pooling() -> list[Case]:
    image, images = (2, 5, 9, 11), (3, 64, 57, 59)

    def pool(name: str, **settings: int | str) -> Case:
        return Case(name, partial(layers.pool2d, **settings), (image,), (images,))

    return [
        pool("max 2x2", pool_size=2, pool_stride=2, pool_type="max"),
        pool("max 3x3 stride 2", pool_size=3, pool_stride=2, pool_padding=1, pool_type="max"),
        pool("average 3x3", pool_size=3, pool_stride=1, pool_padding=1, pool_type="avg"),
        pool("average 2x2", pool_size=2, pool_stride=2, pool_type="avg"),
        pool("whole images", global_pooling=True, pool_type="avg"),
    ]


FAMILIES: dict[str, Sequence[Case]] = {
    "pointwise": _pointwise(),
    "reductions": _reductions(),
    "norms": _norms(),
    "products": _products(),
    "convolutions": _convolutions(),
    "pooling": _pooling(),
}
"""The cases of each family."""
