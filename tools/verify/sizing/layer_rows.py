"""Small programs with their arguments, by family: norms, reductions, broadcasts and so on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from tools.verify.sizing.programs import LOSSES
from tools.verify.sizing.recorder import Shape

Rows = Iterator["Row"]
IMAGES: tuple[Shape, ...] = (
    (8, 64, 32, 32), (16, 64, 56, 56), (32, 3, 96, 96), (4, 2, 181, 181), (1024, 64, 8, 8),
    (1, 64, 256, 256), (64, 2048, 4, 4), (31, 61, 37, 41), (8, 1, 256, 256), (7, 3, 8191, 1),
    (2, 1023, 16, 16), (8, 64, 112, 112),
)  # fmt: skip
MATRICES: tuple[Shape, ...] = (
    (1024, 1024), (4096, 64), (65537, 16), (131071, 3), (3, 131071), (1, 1000003), (1000003, 1),
    (8191, 127),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A program by name, with its arguments; what it has beside results."""

    program: str
    args: Mapping[str, Any]
    has_gradient: bool
    has_names: bool


def _row(
    program: str, *, has_gradient: bool = True, names: Sequence[bool] = (False,), **args: Any
) -> Rows:
    """A program with arguments; with static sizes, a named batch size, or both."""
    return (Row(program, args, has_gradient, has_names) for has_names in names)


BOTH = (False, True)


def _norms() -> Rows:
    for shape in IMAGES:
        yield from _row("norm", names=BOTH, kind="batch_norm", shape=shape)
        yield from _row("norm", kind="instance_norm", shape=shape)
        yield from _row("norm", kind="layer_norm", shape=shape)
        for groups in sorted({1, shape[1]} | ({2, 32} if shape[1] % 32 == 0 else set())):
            yield from _row("norm", kind="group_norm", shape=shape, groups=groups)
    for shape in ((8, 32, 32, 64), (16, 56, 56, 64), (8, 31, 31, 3)):
        yield from _row("norm", kind="batch_norm", shape=shape, data_layout="NHWC")
    for shape in MATRICES:
        yield from _row("norm", kind="batch_norm", shape=shape)
        yield from _row("norm", names=BOTH, kind="layer_norm", shape=shape)
        yield from _row("norm_of_sum", names=BOTH, shape=shape)
    for axis in (1, 2, 3):
        yield from _row("norm", kind="layer_norm", shape=(16, 64, 32, 31), begin_norm_axis=axis)
    for shape in ((8, 64, 32, 32), (16, 64, 56, 56), (8, 3, 224, 224)):
        for kind in ("batch_norm", "instance_norm"):
            for trains in BOTH:
                yield from _row("norm_and_sum", kind=kind, shape=shape, other_trains=trains)
        yield from _row("norm_and_sum", kind="group_norm", shape=shape, groups=1)
        yield from _row("norm", kind="batch_norm", shape=shape, act="relu")
        yield from _row("norm", kind="batch_norm", shape=shape, is_test=True)
    yield from _row("norm", kind="data_norm", shape=(65537, 16), has_gradient=False)
    yield from _row("norm", names=BOTH, kind="lrn", shape=(8, 64, 56, 56))
    yield from _row("norm", kind="spectral_norm", shape=(1000, 2048), power_iters=2)


def _reductions() -> Rows:
    """Every set of axes of every rank."""
    for shape in (
        (2097152,), (1000003,), (1024, 1024), (65537, 16), (3, 500009), (1048576, 3), (8, 64, 4096),
        (4096, 4, 64), (100, 17, 333), (32, 2, 32768), (8, 64, 32, 32), (16, 64, 56, 56),
        (64, 3, 128, 128), (16, 16, 16, 512), (1, 2048, 7, 7),
    ):  # fmt: skip
        for count in range(1, len(shape) + 1):
            for dim in combinations(range(len(shape)), count):
                for kind in ("sum", "mean", "max", "min", "prod"):
                    yield from _row("reduction", kind=f"reduce_{kind}", shape=shape, dim=dim)
                yield from _row("reduction", kind="reduce_sum", names=(True,), shape=shape, dim=dim)
                around = {"before": "square", "after": "sqrt", "keep": True}
                yield from _row("reduction", kind="reduce_sum", shape=shape, dim=dim, **around)
    for shape, axes, starts, ends, dim in (
        ((1048576, 3), (1,), (0,), (1,), (0, 1)),
        ((262144, 8), (1,), (2,), (3,), (0,)),
        ((1024, 64, 64), (2,), (0,), (1,), (0,)),
        ((8, 64, 64, 64), (2,), (0,), (32,), (0, 2, 3)),
        ((2048, 2048), (0, 1), (5, 7), (2000, 1999), (0,)),
        ((512, 8192), (1,), (0,), (4096,), (1,)),
    ):
        settings = {"shape": shape, "axes": axes, "starts": starts, "ends": ends, "dim": dim}
        yield from _row("reduced_slice", **settings)
    for shape, order, dim in (
        ((64, 8, 32, 32), (1, 0, 2, 3), (0,)),
        ((8, 64, 32, 32), (0, 2, 3, 1), (0, 1, 2)),
        ((1024, 1024), (1, 0), (0,)),
        ((2048, 16, 64), (1, 0, 2), (1, 2)),
        ((2048, 16, 64), (2, 1, 0), (0, 2)),
        ((8, 32, 32, 64), (0, 3, 1, 2), (0, 2, 3)),
    ):
        yield from _row("reduced_transpose", shape=shape, order=order, dim=dim)


def _broadcasts() -> Rows:
    """Every contiguous part of a shape at every axis, and every set of sizes of one."""
    for shape in ((8, 64, 32, 32), (31, 127, 127), (4096, 256), (65537, 7)):
        rank = len(shape)
        parts = [(a, shape[a:b]) for a in range(rank) for b in range(a + 1, rank + 1)]
        ones = [
            (-1, tuple(1 if i in chosen else n for i, n in enumerate(shape)))
            for count in range(1, rank + 1)
            for chosen in combinations(range(rank), count)
        ]
        for axis, other in parts + ones:
            for kind in ("add", "sub", "mul", "div", "max", "min"):
                settings = {"kind": f"elementwise_{kind}", "shape": shape, "other": other}
                yield from _row("broadcast", axis=axis, **settings)
    for shape, other in (((8, 1, 65536), (8, 16, 1)), ((1, 1000), (1000, 1)), ((1, 7), (65537, 1))):
        for kind in ("add", "mul", "div"):
            yield from _row("broadcast", kind=f"elementwise_{kind}", shape=shape, other=other)
    for shape in ((8, 64, 32, 32), (16, 64, 56, 56), (2, 3, 300, 301), (64, 16, 32, 32)):
        yield from _row("scale_and_shift", names=BOTH, shape=shape)
        yield from _row("channels", shape=shape)
        for mode in ("channel", "all", "element"):
            yield from _row("prelu", shape=shape, mode=mode)


def _convolutions() -> Rows:
    for shape, filters, more in (
        ((8, 64, 32, 32), 64, {}),
        ((8, 3, 64, 64), 64, {}),
        ((16, 16, 64, 64), 32, {"residual": True}),
        ((1, 64, 112, 112), 64, {}),
        ((8, 64, 56, 56), 64, {"k": 1}),
        ((4, 3, 224, 224), 32, {"k": 7, "stride": 2}),
        ((8, 64, 32, 32), 64, {"groups": 64}),
        ((8, 64, 64, 64), 64, {"groups": 64, "stride": 2}),
        ((8, 32, 32, 32), 64, {"groups": 4}),
        ((8, 64, 32, 32), 64, {"has_norm": False}),
        ((32, 1, 96, 96), 16, {"k": 5}),
        ((1, 256, 31, 31), 1000, {"k": 1, "has_norm": False}),
        ((8, 2048, 7, 7), 64, {"k": 1}),
        ((64, 64, 8, 8), 128, {}),
        ((1, 3, 1021, 31), 7, {}),
        ((8, 32, 32, 32), 32, {"layout": "NHWC"}),
        ((4, 64, 56, 56), 64, {"residual": True}),
        ((1024, 8, 8, 8), 16, {}),
        ((16, 64, 32, 32), 64, {"then": "relu6"}),
        ((2, 64, 127, 127), 3, {"has_norm": False, "then": ""}),
        ((8, 16, 128, 128), 16, {"has_norm": False}),
    ):
        yield from _row("convolution", names=BOTH, shape=shape, filters=filters, **more)
    yield from _row("convolution3d", shape=(2, 8, 32, 32, 32), filters=16)
    yield from _row("convolution3d", shape=(1, 3, 64, 64, 64), filters=8, stride=2)
    for shape, filters, k in (
        ((8, 64, 16, 16), 32, 4), ((1, 16, 128, 128), 3, 4), ((4, 128, 14, 14), 64, 2),
    ):  # fmt: skip
        settings = {"shape": shape, "filters": filters, "k": k}
        yield from _row("transposed_convolution", names=BOTH, **settings)


def _pooling() -> Rows:
    for shape in (
        (8, 64, 56, 56), (4, 3, 224, 224), (1, 2048, 31, 31), (1024, 16, 16, 16), (2, 1, 1021, 509),
    ):  # fmt: skip
        for kind in ("max", "avg"):
            yield from _row("pooling", names=BOTH, kind=kind, shape=shape, pool_stride=2)
            yield from _row("pooling", kind=kind, shape=shape, k=3, pool_stride=2, pool_padding=1)
            yield from _row("pooling", kind=kind, shape=shape, k=3, pool_stride=2, ceil_mode=True)
            yield from _row("pooling", kind=kind, shape=shape, global_pooling=True)
            yield from _row("adaptive_pooling", kind=kind, shape=shape, size=(3, 5))
        settings = {"k": 3, "pool_padding": 1, "exclusive": False}
        yield from _row("pooling", kind="avg", shape=shape, **settings)
    for kind in ("max", "avg"):
        yield from _row("pooling", kind=kind, shape=(8, 56, 56, 64), data_format="NHWC")


def _images() -> Rows:
    for kind in ("resize_bilinear", "resize_nearest"):
        for shape, out in (
            ((4, 16, 64, 64), (128, 128)), ((1, 3, 509, 509), (224, 224)),
            ((1, 2048, 7, 7), (31, 31)), ((2, 1, 1021, 31), (127, 127)),
        ):  # fmt: skip
            yield from _row("resize", names=BOTH, kind=kind, shape=shape, out=out)
    yield from _row("sampled_grid", shape=(4, 16, 64, 64))
    yield from _row("patches", shape=(4, 16, 64, 64))
    for kind, shape, number in (
        ("pixel_shuffle", (4, 64, 64, 64), 2), ("shuffle_channel", (8, 64, 56, 56), 4),
        ("space_to_depth", (4, 16, 128, 128), 2),
    ):  # fmt: skip
        yield from _row("rearranged", kind=kind, shape=shape, number=number)


def _products() -> Rows:
    for rows, width, size, then in (
        (1024, 768, 3072, "gelu"), (65537, 16, 8, "gelu"), (1, 8191, 1000, "tanh"),
        (8, 65536, 10, ""), (131071, 3, 7, "relu"), (509, 1021, 2039, "relu"),
        (4096, 256, 256, "relu"), (262144, 4, 1, ""), (2, 1000003, 2, ""),
    ):  # fmt: skip
        settings = {"rows": rows, "width": width, "size": size, "then": then}
        yield from _row("fully_connected", names=BOTH, **settings)
    yield from _row("fully_connected", rows=512, width=768, size=768, twice=True)
    for x, y, tx, ty in (
        ((1024, 512), (512, 1024), False, False),
        ((512, 1024), (1024, 512), True, True),
        ((1021, 127), (1021, 509), True, False),
        ((8, 12, 128, 64), (8, 12, 128, 64), False, True),
        ((64, 127, 61), (64, 61, 31), False, False),
        ((3, 65537), (3, 65537), False, True),
        ((65537, 3), (65537, 5), True, False),
        ((2048, 1), (1, 2048), False, False),
        ((1, 262144), (262144, 1), False, False),
        ((1024, 16, 16), (1024, 16, 16), True, False),
        ((131071, 2), (2, 2), False, False),
    ):
        yield from _row("product", names=BOTH if len(x) > 2 else (False,), x=x, y=y, tx=tx, ty=ty)
    for n, heads, steps, width in ((8, 12, 128, 64), (1, 4, 509, 32), (64, 8, 32, 16)):
        yield from _row("attention", names=BOTH, n=n, heads=heads, steps=steps, width=width)


def _losses() -> Rows:
    for rows, classes in (
        (1024, 1000), (65537, 10), (8, 131071), (1, 1048576), (131072, 2), (262144, 3), (8191, 257),
        (128, 30522),
    ):  # fmt: skip
        for kind in ("both", "apart", "soft"):
            for mean in BOTH:
                settings = {"kind": kind, "rows": rows, "classes": classes, "mean": mean}
                yield from _row("classification", names=BOTH, **settings)
        for axis in (0, 1):
            yield from _row("softmax", shape=(rows, classes), axis=axis)
        yield from _row("softmax", shape=(rows, classes), then="log")
        yield from _row("accuracy", rows=rows, classes=classes, has_gradient=False)
    for n, classes, side in ((4, 21, 128), (8, 2, 256)):
        yield from _row("pixels", names=BOTH, n=n, classes=classes, side=side)
    for kind in LOSSES:
        for shape in ((1048576, 1), (65537, 16), (8, 131071), (1024, 1024), (4, 3, 300, 300)):
            if not (kind == "smooth_l1" and len(shape) > 2) and not (
                kind == "log" and shape[-1] > 1
            ):
                yield from _row("loss", names=BOTH, kind=kind, shape=shape)
    for axis in (1, 2, 3):
        yield from _row("softmax", shape=(8, 21, 128, 127), axis=axis)
    yield from _row("mean_iou", shape=(8, 512, 512), classes=21, has_gradient=False)


def _pointwise() -> Rows:
    chains = (
        "sqrt exp tanh", "gelu", "sigmoid log square", "softplus reciprocal", "relu abs",
        "sin cos rsqrt", "erf swish elu", "hard_swish softsign", "ceil floor", "leaky_relu relu6",
        "logsigmoid exp", "tanh_shrink softshrink", "stanh brelu", "acos asin atan",
    )  # fmt: skip
    for shape in ((1048576,), (65537, 16), (8, 64, 56, 56), (1, 131071), (2, 3, 1021, 509)):
        yield from _row("pointwise", names=BOTH, shape=shape)
        yield from _row("chosen", shape=shape)
        for kinds in chains:
            yield from _row("chain", kinds=kinds.split(), shape=shape)


def _moves() -> Rows:
    for shape, order in (
        ((1024, 1024), (1, 0)), ((8191, 127), (1, 0)), ((3, 1000003), (1, 0)),
        ((1000003, 3), (1, 0)), ((8, 64, 56, 56), (0, 2, 3, 1)), ((8, 56, 56, 64), (0, 3, 1, 2)),
        ((8, 12, 128, 64), (0, 2, 1, 3)), ((61, 37, 41, 31), (3, 1, 0, 2)),
        ((64, 64, 64, 16), (2, 1, 3, 0)), ((2, 3, 4, 131071), (1, 3, 0, 2)),
        ((16, 8191, 5), (1, 2, 0)),
    ):  # fmt: skip
        yield from _row("transpose", names=BOTH, shape=shape, order=order)
        yield from _row("transpose", shape=shape, order=order, scaled=True)
    for shapes, axis in (
        (((8, 32, 56, 56), (8, 64, 56, 56)), 1), (((65537, 3), (65537, 5), (65537, 8)), 1),
        (((1000, 512), (24, 512)), 0), (((8, 127, 1021), (8, 127, 3)), 2), (((1, 131071),) * 4, 0),
    ):  # fmt: skip
        yield from _row("concat", shapes=shapes, axis=axis)
    for shape, sections, axis in (
        ((8, 96, 56, 56), [32, 64], 1), ((65537, 16), [3, 5, 8], 1), ((1024, 1024), 4, 0),
        ((8, 127, 1024), 8, 2), ((131072, 12), 3, 1),
    ):  # fmt: skip
        yield from _row("split", shape=shape, sections=sections, axis=axis)
    for shape, count, axis in (((65537, 5), 3, 1), ((1024, 512), 4, 0), ((8191, 31), 2, 2)):
        yield from _row("stack", shape=shape, count=count, axis=axis)
    for shape, times in (
        ((1024, 64), (1, 16)), ((8191, 1), (1, 127)), ((1, 131071), (8, 1)),
        ((8, 1, 4096), (1, 64, 1)), ((64, 64), (16, 16)),
    ):  # fmt: skip
        yield from _row("expand", shape=shape, times=times)
    for shape, widths in (
        ((1021, 1021), (1, 2, 3, 4)), ((8, 64, 55, 55), (0, 0, 0, 0, 1, 1, 1, 1)),
        ((131071, 5), (0, 1, 2, 0)),
    ):  # fmt: skip
        yield from _row("pad", shape=shape, widths=widths)


def _indices() -> Rows:
    for rows, words, width in (
        (4096, 30522, 64), (65537, 1000, 16), (131071, 100, 8), (1024, 8191, 256), (1, 131071, 8),
    ):  # fmt: skip
        settings = {"rows": rows, "words": words, "width": width}
        for sparse in BOTH:
            yield from _row("embedding", names=BOTH, sparse=sparse, **settings)
            for pool in ("sum", "average", "max", "last"):
                yield from _row("embedding", pool=pool, sparse=sparse, **settings)
    for shape, count in (
        ((65537, 16), 8191), ((1000, 2048), 512), ((8191, 3), 131071), ((64, 64, 64, 8), 31),
    ):  # fmt: skip
        for dtype in ("int32", "int64"):
            yield from _row("gather", shape=shape, count=count, dtype=dtype)
        yield from _row("scatter", shape=shape, count=min(count, 8191))
    for kind in ("gather_nd", "scatter_nd"):
        yield from _row(kind, shape=(1021, 509, 4), count=65537)
    for rows, depth in ((65537, 16), (1024, 1000), (8191, 127), (131071, 2)):
        yield from _row("one_hot", rows=rows, depth=depth, has_gradient=False)


def _scans() -> Rows:
    for shape, axis in (
        ((1024, 1024), 1), ((1024, 1024), 0), ((3, 131071), 1), ((131071, 3), 0), ((65537, 16), 1),
        ((8, 64, 4096), 2), ((8, 64, 4096), 1), ((1, 1000003), 1),
    ):  # fmt: skip
        for attrs in ({}, {"exclusive": True, "reverse": True}):
            yield from _row("cumsum", shape=shape, axis=axis, **attrs)
        for descending in BOTH:
            yield from _row("sort", shape=shape, axis=axis, descending=descending)
        for kind in ("argmax", "argmin"):
            yield from _row("extreme", kind=kind, shape=shape, axis=axis, has_gradient=False)
    for shape, k in (
        ((1024, 1000), 5), ((65537, 16), 3), ((1, 1000003), 10), ((8, 131071), 1),
        ((128, 30522), 100), ((8191, 127), 127),
    ):  # fmt: skip
        yield from _row("top_k", shape=shape, k=k)


def _sequences() -> Rows:
    pools = [f"pool_{kind}" for kind in ("sum", "average", "sqrt", "max", "first", "last")]
    for kind in (*pools, "softmax", "conv", "row_conv", "reverse", "pad", "expand"):
        for count, longest, width in (
            (4096, 31, 16), (64, 2000, 8), (3, 65537, 8), (65537, 3, 8), (512, 63, 128),
        ):  # fmt: skip
            settings = {"count": count, "longest": longest}
            yield from _row(
                "sequence", kind=kind, width=1 if kind == "softmax" else width, **settings
            )
    for kind in ("lstm", "lstm_peepholes", "gru", "lstmp"):
        for count, longest, width in (
            (256, 40, 192),
            (1024, 9, 96),
            (16, 200, 384),
            (2000, 31, 48),
        ):
            yield from _row("sequence", kind=kind, count=count, longest=longest, width=width)
    yield from _row("crf", count=2000, longest=31, tags=16)
    yield from _row("crf", count=64, longest=300, tags=57)
    yield from _row("ctc", count=64, steps=60, classes=97)
    yield from _row("gates", names=BOTH, rows=8191, width=64)


def _optimizers() -> Rows:
    momentum = {"momentum": 0.9}
    kinds: dict[str, dict[str, Any]] = {
        "SGD": {}, "Momentum": momentum, "Adam": {}, "Adagrad": {}, "Adamax": {},
        "RMSProp": {"momentum": 0.9, "centered": True}, "Adadelta": {}, "Ftrl": {}, "Lamb": {},
        "LarsMomentum": momentum, "DecayedAdagrad": {},
    }  # fmt: skip
    for kind, attrs in kinds.items():
        for shape in ((1024, 1024), (8191, 127), (1, 1000003), (131072, 16)):
            settings = {"kind": kind, "shape": shape, "has_gradient": False, **attrs}
            yield from _row("optimizer", **settings)
            if kind in ("SGD", "Momentum", "Adam"):
                for clip in ("", "norm", "global", "value"):
                    yield from _row("optimizer", decay=0.01, clip=clip, **settings)


def _vectors() -> Rows:
    for shape, axis in (
        ((4096, 256), 1), ((256, 4096), 0), ((8, 64, 32, 32), 1), ((65537, 8), 0), ((3, 500009), 1),
    ):  # fmt: skip
        yield from _row("vectors", kind="l2_normalize", shape=shape, axis=axis)
    for shape in ((65537, 16), (8, 131071), (1024, 512)):
        yield from _row("vectors", kind="cos_sim", shape=shape)
        yield from _row("vectors", kind="clip_by_norm", shape=shape, max_norm=1.0)
    for width, size in ((512, 1024), (8191, 64), (64, 65536)):
        yield from _row("weight_norm", rows=16, width=width, size=size)
    for shape in ((4096, 512), (8, 131071)):
        for kind in ("softmax", "relu"):
            yield from _row("half_precision", kind=kind, shape=shape, has_gradient=False)
    for shape, other in (((1024, 512), (512, 768)), ((509, 1021), (1021, 127))):
        settings = {"shape": shape, "other": other}
        yield from _row("half_precision", kind="matmul", has_gradient=False, **settings)


SHRINKING = (_norms, _reductions, _broadcasts, _products, _losses, _pointwise, _optimizers)
"""Families of programs whose sizes may change independently."""
FAMILIES = (
    *SHRINKING, _convolutions, _pooling, _images, _moves, _indices, _scans, _sequences, _vectors,
)  # fmt: skip
"""All families of programs."""
