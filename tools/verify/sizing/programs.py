"""Small programs of dense layers, by name; each records its inputs and returns its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fluid
from tools.verify.sizing.recorder import Recorder, Shape, layers

PROGRAMS: dict[str, Callable[..., Sequence[Any]]] = {}


def program(record: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """Register a program under the name of its function."""
    PROGRAMS[record.__name__] = record
    return record


def applied(name: str, x: Any) -> Any:
    """A layer of one input by name; the input itself for an empty name."""
    return getattr(layers, name)(x) if name else x


@program
def norm(r: Recorder, kind: str, shape: Shape, then: str = "", **attrs: Any) -> Sequence[Any]:
    return [applied(then, getattr(layers, kind)(r.floats("x", shape, 0.0), **attrs))]


@program
def norm_of_sum(r: Recorder, shape: Shape, axis: int = 1) -> Sequence[Any]:
    total = layers.elementwise_add(r.floats("x", shape), r.floats("y", shape))
    return [layers.layer_norm(total, begin_norm_axis=axis)]


@program
def norm_and_sum(
    r: Recorder, kind: str, shape: Shape, other_trains: bool = False, **attrs: Any
) -> Sequence[Any]:
    x, y = r.floats("x", shape), r.floats("y", shape, has_gradient=other_trains)
    return [layers.relu(layers.elementwise_add(getattr(layers, kind)(x, **attrs), y))]


@program
def convolution(
    r: Recorder,
    shape: Shape,
    filters: int,
    k: int = 3,
    stride: int = 1,
    groups: int = 1,
    layout: str = "NCHW",
    has_norm: bool = True,
    then: str = "relu",
    residual: bool = False,
) -> Sequence[Any]:
    x = r.floats("x", shape)
    options = {"groups": groups, "bias_attr": False if has_norm else None, "data_format": layout}
    y = layers.conv2d(x, filters, k, stride, k // 2, **options)
    y = layers.batch_norm(y, data_layout=layout) if has_norm else y
    if residual:
        y = layers.elementwise_add(y, r.floats("r", y.shape, has_gradient=False))
    return [applied(then, y)]


@program
def convolution3d(r: Recorder, shape: Shape, filters: int, stride: int = 1) -> Sequence[Any]:
    return [layers.relu(layers.conv3d(r.floats("x", shape), filters, 3, stride, 1))]


@program
def transposed_convolution(r: Recorder, shape: Shape, filters: int, k: int = 4) -> Sequence[Any]:
    x = r.floats("x", shape)
    return [layers.relu(layers.conv2d_transpose(x, filters, filter_size=k, stride=2, padding=1))]


@program
def pooling(r: Recorder, kind: str, shape: Shape, k: int = 2, **attrs: Any) -> Sequence[Any]:
    return [layers.pool2d(r.floats("x", shape), k, kind, **attrs)]


@program
def adaptive_pooling(r: Recorder, kind: str, shape: Shape, size: Shape) -> Sequence[Any]:
    return [layers.adaptive_pool2d(r.floats("x", shape), list(size), kind)]


@program
def resize(r: Recorder, kind: str, shape: Shape, out: Shape) -> Sequence[Any]:
    return [getattr(layers, kind)(r.floats("x", shape), out_shape=list(out))]


@program
def sampled_grid(r: Recorder, shape: Shape) -> Sequence[Any]:
    grid = r.floats("grid", (shape[0], *shape[2:], 2), -0.9, 0.9)
    return [layers.grid_sampler(r.floats("x", shape), grid)]


@program
def rearranged(r: Recorder, kind: str, shape: Shape, number: int) -> Sequence[Any]:
    return [getattr(layers, kind)(r.floats("x", shape), number)]


@program
def patches(r: Recorder, shape: Shape) -> Sequence[Any]:
    return [layers.unfold(r.floats("x", shape), 3, 1, 1)]


@program
def reduction(
    r: Recorder,
    kind: str,
    shape: Shape,
    dim: Sequence[int],
    keep: bool = False,
    before: str = "",
    after: str = "",
) -> Sequence[Any]:
    low, high = (0.9999, 1.0001) if kind == "reduce_prod" else (0.01, 1.0)
    x = applied(before, r.floats("x", shape, low, high))
    return [applied(after, getattr(layers, kind)(x, dim=list(dim), keep_dim=keep))]


@program
def reduced_slice(
    r: Recorder, shape: Shape, axes: Shape, starts: Shape, ends: Shape, dim: Shape
) -> Sequence[Any]:
    part = layers.slice(r.floats("x", shape, 0.0), list(axes), list(starts), list(ends))
    return [layers.reduce_sum(part, dim=list(dim))]


@program
def reduced_transpose(r: Recorder, shape: Shape, order: Shape, dim: Shape) -> Sequence[Any]:
    x = layers.transpose(r.floats("x", shape, 0.0), list(order))
    return [layers.reduce_sum(x, dim=list(dim))]


@program
def broadcast(
    r: Recorder, kind: str, shape: Shape, other: Shape, axis: int = -1, then: str = ""
) -> Sequence[Any]:
    x = r.floats("x", shape, 0.5, 2.0)
    y = r.floats("y", other, 0.5, 2.0, has_batch=len(other) == len(shape) and other[0] == shape[0])
    return [applied(then, getattr(layers, kind)(x, y, axis=axis))]


@program
def scale_and_shift(r: Recorder, shape: Shape) -> Sequence[Any]:
    scale, shift = (r.floats(name, shape[1:2], has_batch=False) for name in ("scale", "shift"))
    y = layers.elementwise_mul(r.floats("x", shape), scale, axis=1)
    return [layers.relu(layers.elementwise_add(y, shift, axis=1))]


@program
def channels(r: Recorder, shape: Shape) -> Sequence[Any]:
    scale, bias = (r.floats(name, shape[1:2], has_batch=False) for name in ("scale", "bias"))
    return [layers.affine_channel(r.floats("x", shape), scale, bias)]


@program
def prelu(r: Recorder, shape: Shape, mode: str) -> Sequence[Any]:
    return [layers.prelu(r.floats("x", shape), mode)]


@program
def fully_connected(
    r: Recorder, rows: int, width: int, size: int, then: str = "gelu", twice: bool = False
) -> Sequence[Any]:
    y = applied(then, layers.fc(r.floats("x", (rows, width)), size))
    return [layers.fc(y, width) if twice else y]


@program
def product(r: Recorder, x: Shape, y: Shape, tx: bool = False, ty: bool = False) -> Sequence[Any]:
    batched = len(x) > 2
    left = r.floats("x", x, has_batch=batched)
    return [layers.matmul(left, r.floats("y", y, has_batch=batched), tx, ty)]


@program
def attention(r: Recorder, n: int, heads: int, steps: int, width: int) -> Sequence[Any]:
    q, k, v = (r.floats(name, (n, heads, steps, width)) for name in "qkv")
    p = layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=width**-0.5))
    return [layers.transpose(layers.matmul(p, v), [0, 2, 1, 3])]


@program
def softmax(r: Recorder, shape: Shape, axis: int = -1, then: str = "") -> Sequence[Any]:
    return [applied(then, layers.softmax(r.floats("x", shape, -4.0, 4.0), axis=axis))]


@program
def classification(
    r: Recorder, rows: int, classes: int, kind: str = "both", mean: bool = True
) -> Sequence[Any]:
    """Cross entropy: "both" in one op, "apart" after a softmax, or with "soft" labels."""
    x = r.floats("x", (rows, classes), -3.0, 3.0)
    if kind == "soft":
        y = r.floats("y", (rows, classes), 0.0, 2.0 / classes, has_gradient=False)
        loss = layers.softmax_with_cross_entropy(x, y, soft_label=True)
    elif kind == "apart":
        loss = layers.cross_entropy(layers.softmax(x), r.integers("y", (rows, 1), classes))
    else:
        loss = layers.softmax_with_cross_entropy(x, r.integers("y", (rows, 1), classes))
    return [layers.mean(loss) if mean else loss]


@program
def pixels(r: Recorder, n: int, classes: int, side: int) -> Sequence[Any]:
    x, y = r.floats("x", (n, classes, side, side), -3.0, 3.0), (n, 1, side, side)
    label = r.integers("y", y, classes)
    return [layers.mean(layers.softmax_with_cross_entropy(x, label, axis=1))]


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "square": layers.square_error_cost,
    "sigmoid": layers.sigmoid_cross_entropy_with_logits,
    "smooth_l1": layers.smooth_l1,
    "kldiv": lambda x, y: layers.kldiv_loss(x, y, "none"),
    "huber": lambda x, y: layers.huber_loss(x, y, 0.3),
    "log": layers.log_loss,
}


@program
def loss(r: Recorder, kind: str, shape: Shape) -> Sequence[Any]:
    x = r.floats("x", shape, 0.05, 0.95)
    return [layers.mean(LOSSES[kind](x, r.floats("y", shape, 0.05, 0.95, has_gradient=False)))]


@program
def accuracy(r: Recorder, rows: int, classes: int, k: int = 1) -> Sequence[Any]:
    x = layers.softmax(r.floats("x", (rows, classes)))
    return [layers.accuracy(x, r.integers("y", (rows, 1), classes), k)]


@program
def mean_iou(r: Recorder, shape: Shape, classes: int) -> Sequence[Any]:
    return list(layers.mean_iou(*(r.integers(n, shape, classes) for n in "xy"), classes))


@program
def chain(r: Recorder, kinds: Sequence[str], shape: Shape) -> Sequence[Any]:
    x = r.floats("x", shape, 0.1, 0.9)
    for name in kinds:
        x = getattr(layers, name)(x)
    return [x]


@program
def pointwise(r: Recorder, shape: Shape) -> Sequence[Any]:
    x, y = r.floats("x", shape), r.floats("y", shape)
    z = layers.elementwise_mul(layers.sigmoid(x), layers.tanh(y))
    z = layers.elementwise_add(z, layers.scale(x, 0.5, 0.1))
    return [layers.clip(z, -0.9, 0.9), layers.leaky_relu(layers.elementwise_sub(y, z), 0.2)]


@program
def chosen(r: Recorder, shape: Shape) -> Sequence[Any]:
    x, y = r.floats("x", shape), r.floats("y", shape)
    is_greater = layers.cast(layers.greater_than(x, y), "float32")
    return [layers.elementwise_add(layers.elementwise_mul(is_greater, x), y)]


@program
def transpose(r: Recorder, shape: Shape, order: Shape, scaled: bool = False) -> Sequence[Any]:
    y = layers.transpose(r.floats("x", shape), list(order))
    return [layers.scale(y, 2.0, 1.0) if scaled else y]


@program
def concat(r: Recorder, shapes: Sequence[Shape], axis: int) -> Sequence[Any]:
    parts = [r.floats(f"x{i}", s, has_batch=axis != 0) for i, s in enumerate(shapes)]
    return [layers.relu(layers.concat(parts, axis))]


@program
def split(r: Recorder, shape: Shape, sections: Any, axis: int) -> Sequence[Any]:
    x = r.floats("x", shape, has_batch=axis != 0)
    return [layers.relu(y) for y in layers.split(x, sections, axis)]


@program
def stack(r: Recorder, shape: Shape, count: int, axis: int) -> Sequence[Any]:
    return [layers.stack([r.floats(f"x{i}", shape) for i in range(count)], axis)]


@program
def expand(r: Recorder, shape: Shape, times: Shape) -> Sequence[Any]:
    return [layers.expand(r.floats("x", shape), list(times))]


@program
def pad(r: Recorder, shape: Shape, widths: Shape) -> Sequence[Any]:
    return [layers.pad(r.floats("x", shape), list(widths), 0.3)]


@program
def cumsum(r: Recorder, shape: Shape, axis: int, **attrs: bool) -> Sequence[Any]:
    return [layers.cumsum(r.floats("x", shape, 0.0), axis, **attrs)]


@program
def top_k(r: Recorder, shape: Shape, k: int) -> Sequence[Any]:
    return list(layers.topk(r.floats("x", shape), k))


@program
def sort(r: Recorder, shape: Shape, axis: int, descending: bool = False) -> Sequence[Any]:
    return list(layers.argsort(r.floats("x", shape), axis, descending))


@program
def extreme(r: Recorder, kind: str, shape: Shape, axis: int) -> Sequence[Any]:
    return [getattr(layers, kind)(r.floats("x", shape), axis)]


@program
def vectors(r: Recorder, kind: str, shape: Shape, **attrs: Any) -> Sequence[Any]:
    x = r.floats("x", shape, 0.1)
    if kind == "cos_sim":
        return [layers.cos_sim(x, r.floats("y", shape, 0.1))]
    return [getattr(layers, kind)(x, **attrs)]


@program
def half_precision(r: Recorder, kind: str, shape: Shape, other: Shape = ()) -> Sequence[Any]:
    x = layers.cast(r.floats("x", shape), "bfloat16")
    if kind == "matmul":
        y = layers.matmul(x, layers.cast(r.floats("y", other, has_batch=False), "bfloat16"))
    else:
        y = applied(kind, layers.scale(x, 1.5, 0.1))
    return [y]


@program
def weight_norm(r: Recorder, rows: int, width: int, size: int) -> Sequence[Any]:
    attr = fluid.WeightNormParamAttr(dim=1)
    return [layers.fc(r.floats("x", (rows, width)), size, param_attr=attr)]
