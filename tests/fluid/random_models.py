"""Random models of uneven shapes, run on each target: images, dense rows, sequences of ids.

A model is determined by its number: its family, layers, sizes, loss, optimizer and batch size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import numpy as np

import fluid
from tests.passes.test_random_networks import NAMES

layers = fluid.layers
Variable = fluid.Variable

WAYS: Mapping[str, Mapping[str, str]] = {
    "numpy": {"FLUID_TARGET": "numpy"},
    "native": {"FLUID_TARGET": "native"},
    "native as written": {"FLUID_TARGET": "native", "FLUID_DISABLE": ",".join(NAMES)},
    "native with checks": {"FLUID_TARGET": "native", "FLUID_CHECK": "1"},
}
"""The environment of each way to run a model; the first is what the others are compared with."""
STEPS = 2


@dataclass(frozen=True)
class Model:
    """A recorded model: programs, what is fetched, and a feed; `trains` if it has an optimizer."""

    main: fluid.Program
    startup: fluid.Program
    fetches: list[Variable]
    feed: dict[str, object]
    trains: bool


def recorded(number: int) -> Model:
    """The model of a number."""
    rng = Random(number)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1 + number
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        family = rng.choice([images, images, rows, ids])
        batch, trains = rng.randint(1, 5), rng.random() < 0.6
        x, feed = family(rng, batch)
        out, loss = _loss(rng, x, batch, feed)
        fetches = [out, loss]
        if trains:
            _optimizer(rng).minimize(loss)
        else:
            main = main.clone(for_test=True)
    return Model(main, startup, fetches, feed, trains)


def outcome(model: Model, way: str) -> dict[str, np.ndarray]:
    """What some steps of a model return, and the parameters that they leave."""
    steps, result = STEPS if model.trains else 1, dict[str, np.ndarray]()
    with patch.dict(os.environ, WAYS[way]), fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(model.startup)
        for step in range(steps):
            results = exe.run(model.main, model.feed, model.fetches)
            result |= {
                f"{v.name} of step {step}": r for v, r in zip(model.fetches, results, strict=True)
            }
        for each in model.main.all_parameters() if model.trains else ():
            result[each.name] = np.array(fluid.global_scope().find_var(each.name).get_tensor())
    return result


def difference(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> str:
    """Where two outcomes differ by more than rounding; empty if nowhere.

    Errors are relative to the largest number of an array: a sum of many terms is as inexact as they
    are large. NaN, as of a norm over a window of padding alone, must be in the same places.
    """
    for name, want in wanted.items():
        got = found[name]
        if got.shape != want.shape:
            return f"{name} has shape {got.shape}, expected {want.shape}"
        number = ~np.isnan(want)
        if not np.array_equal(np.isnan(got), ~number):
            return f"{name} is NaN in other places"
        scale = max(1e-2, float(np.abs(want[number]).max(initial=0)))
        error = float(np.abs(got[number].astype("f8") - want[number]).max(initial=0)) / scale
        if not error < 2e-3:
            return f"{name} differs by {error:.1e} of its largest number"
    return ""


# ---- images ------------------------------------------------------------------------------------


def images(rng: Random, batch: int) -> tuple[Variable, dict[str, object]]:
    """A network over images of uneven size."""
    channels, height, width = rng.choice([1, 2, 3, 5, 16]), rng.randint(5, 17), rng.randint(5, 17)
    x = layers.data("x", [channels, height, width])
    feed: dict[str, object] = {"x": _floats(rng, batch, channels, height, width)}
    for _ in range(rng.randint(1, 5)):
        x = rng.choice(IMAGE_LAYERS)(rng, x)
    return x, feed


def _conv(rng: Random, x: Variable) -> Variable:
    size, filters = rng.choice([1, 3, 3, 3, 5]), rng.choice([1, 3, 4, 7, 16, 17, 33])
    stride, dilation = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
    act = rng.choice([None, "relu", "sigmoid", "tanh"])
    return layers.conv2d(
        x, filters, size, stride, padding=size // 2 * dilation, dilation=dilation, act=act,
        bias_attr=None if rng.random() < 0.6 else False,
    )  # fmt: skip


def _depthwise(rng: Random, x: Variable) -> Variable:
    channels, size = x.shape[1], rng.choice([3, 3, 5])
    return layers.conv2d(
        x, channels * rng.choice([1, 1, 2]), size, rng.choice([1, 2]), size // 2, groups=channels
    )


def _transposed(rng: Random, x: Variable) -> Variable:
    if x.shape[2] * x.shape[3] > 400:
        return layers.relu(x)
    stride = rng.choice([1, 2])
    return layers.conv2d_transpose(x, rng.choice([2, 5]), filter_size=3, stride=stride, padding=1)


def _pool(rng: Random, x: Variable) -> Variable:
    size = rng.choice([2, 3])
    if min(x.shape[2:]) < size:
        return layers.pool2d(x, pool_type="avg", global_pooling=True)
    return layers.pool2d(
        x, size, rng.choice(["max", "avg"]), rng.choice([1, 2]), rng.choice([0, 1]),
        ceil_mode=rng.random() < 0.3, exclusive=rng.random() < 0.5,
    )  # fmt: skip


def _normed(rng: Random, x: Variable) -> Variable:
    kind = rng.choice(["batch", "batch", "group", "instance", "layer"])
    if kind == "group":
        return layers.group_norm(x, 1)
    if kind == "instance" and x.shape[2] * x.shape[3] > 1:
        return layers.instance_norm(x)
    if kind == "layer":
        return layers.layer_norm(x, begin_norm_axis=rng.choice([1, 2, 3]))
    return layers.batch_norm(x, act=rng.choice([None, "relu"]))


def _bent(rng: Random, x: Variable) -> Variable:
    act: Callable[[Variable], Variable] = rng.choice(
        [layers.relu, layers.leaky_relu, layers.swish, layers.elu, layers.hard_sigmoid]
    )
    return act(x)


def _residual(rng: Random, x: Variable) -> Variable:
    other = layers.conv2d(x, x.shape[1], 3, padding=1)
    return layers.elementwise_add(x, other, act=rng.choice([None, "relu"]))


def _joined(rng: Random, x: Variable) -> Variable:
    other = layers.conv2d(x, rng.choice([1, 4, 9]), 1)
    return layers.concat([x, other], 1)


def _resized(rng: Random, x: Variable) -> Variable:
    if x.shape[2] * x.shape[3] > 400:
        return layers.relu(x)
    shape = [rng.randint(2, 13), rng.randint(2, 13)]
    return rng.choice([layers.resize_bilinear, layers.resize_nearest])(x, shape)


def _swapped(rng: Random, x: Variable) -> Variable:
    return layers.transpose(x, rng.choice([[0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2]]))


def _padded(rng: Random, x: Variable) -> Variable:
    return layers.pad2d(x, [rng.randint(0, 2) for _ in range(4)])


def _scaled(rng: Random, x: Variable) -> Variable:
    gate = layers.pool2d(x, pool_type="avg", global_pooling=True)
    gate = layers.fc(gate, x.shape[1], act="sigmoid")
    return layers.elementwise_mul(x, gate, axis=0)


IMAGE_LAYERS = [
    _conv, _conv, _conv, _depthwise, _transposed, _pool, _pool, _normed, _normed, _bent, _residual,
    _joined, _resized, _swapped, _padded, _scaled,
]  # fmt: skip


# ---- rows --------------------------------------------------------------------------------------


def rows(rng: Random, batch: int) -> tuple[Variable, dict[str, object]]:
    """A network over rows of uneven length, with attention and slices."""
    length, width = rng.randint(1, 9), rng.choice([1, 3, 7, 16, 31, 65])
    x = layers.data("x", [length, width])
    feed: dict[str, object] = {"x": _floats(rng, batch, length, width)}
    for _ in range(rng.randint(1, 6)):
        x = rng.choice(ROW_LAYERS)(rng, x)
    return x, feed


def _dense(rng: Random, x: Variable) -> Variable:
    act = rng.choice([None, "relu", "tanh", "sigmoid"])
    return layers.fc(x, rng.choice([1, 2, 5, 16, 17, 33, 50]), num_flatten_dims=2, act=act)


def _attention(rng: Random, x: Variable) -> Variable:
    query, key = (layers.fc(x, 6, num_flatten_dims=2) for _ in range(2))
    weights = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=0.4))
    return layers.matmul(weights, x)


def _row_norm(rng: Random, x: Variable) -> Variable:
    return layers.layer_norm(x, begin_norm_axis=rng.choice([1, 2]))


def _split(rng: Random, x: Variable) -> Variable:
    if x.shape[2] < 2:
        return layers.tanh(x)
    first = rng.randint(1, x.shape[2] - 1)
    left, right = layers.split(x, [first, x.shape[2] - first], 2)
    return layers.concat([layers.tanh(right), left], 2)


def _sliced(rng: Random, x: Variable) -> Variable:
    end = rng.randint(1, x.shape[1])
    return layers.slice(x, [1], [rng.randint(0, end - 1)], [end])


def _reduced(rng: Random, x: Variable) -> Variable:
    kind = rng.choice([layers.reduce_sum, layers.reduce_mean, layers.reduce_max])
    return layers.elementwise_sub(x, kind(x, dim=rng.choice([1, 2]), keep_dim=True))


def _turned(rng: Random, x: Variable) -> Variable:
    return layers.transpose(x, [0, 2, 1])


def _sorted(rng: Random, x: Variable) -> Variable:
    best, _ = layers.topk(x, rng.randint(1, x.shape[2]))
    return best


def _expanded(rng: Random, x: Variable) -> Variable:
    if x.shape[1] * x.shape[2] > 300:
        return layers.square(x)
    return layers.expand(x, [1, rng.choice([1, 2, 3]), 1])


ROW_LAYERS = [
    _dense, _dense, _attention, _row_norm, _split, _sliced, _reduced, _turned, _sorted, _expanded,
]  # fmt: skip


# ---- sequences of ids --------------------------------------------------------------------------


def ids(rng: Random, batch: int) -> tuple[Variable, dict[str, object]]:
    """A network over sequences of ids of uneven lengths."""
    words, width = rng.choice([3, 17, 200]), rng.choice([1, 5, 8, 19])
    x = layers.data("ids", [1], dtype="int64", lod_level=1)
    lengths = [rng.randint(1, 7) for _ in range(batch)]
    values = np.array([[rng.randrange(words)] for _ in range(sum(lengths))], "int64")
    feed: dict[str, object] = {"ids": fluid.create_lod_tensor(values, [lengths], fluid.CPUPlace())}
    x = layers.embedding(x, [words, width], is_sparse=rng.random() < 0.5)
    for _ in range(rng.randint(0, 2)):
        x = rng.choice(SEQUENCE_LAYERS)(rng, x)
    return layers.sequence_pool(
        x, rng.choice(["sum", "average", "max", "last", "first", "sqrt"])
    ), feed


def _lstm(rng: Random, x: Variable) -> Variable:
    size = 4 * rng.choice([1, 3, 8])
    hidden, _ = layers.dynamic_lstm(layers.fc(x, size), size, is_reverse=rng.random() < 0.5)
    return hidden


def _gru(rng: Random, x: Variable) -> Variable:
    size = rng.choice([1, 5, 8])
    return layers.dynamic_gru(layers.fc(x, 3 * size), size, is_reverse=rng.random() < 0.5)


def _window(rng: Random, x: Variable) -> Variable:
    return layers.sequence_conv(x, rng.choice([3, 10]), filter_size=3, act="tanh")


def _weighted(rng: Random, x: Variable) -> Variable:
    weights = layers.sequence_softmax(layers.fc(x, 1))
    return layers.elementwise_mul(x, weights, axis=0)


SEQUENCE_LAYERS = [_lstm, _gru, _window, _weighted]


# ---- ends --------------------------------------------------------------------------------------


def _loss(
    rng: Random, x: Variable, batch: int, feed: dict[str, object]
) -> tuple[Variable, Variable]:  # fmt: skip
    """An output and a loss."""
    classes = rng.choice([2, 3, 10, 17])
    if rng.random() < 0.7:
        out = layers.fc(x, classes, act="softmax")
        label = layers.data("label", [1], dtype="int64")
        feed["label"] = np.array([[rng.randrange(classes)] for _ in range(batch)], "int64")
        return out, layers.mean(layers.cross_entropy(out, label))
    out = layers.fc(x, classes)
    target = layers.data("target", [classes])
    feed["target"] = _floats(rng, batch, classes)
    return out, layers.mean(layers.square_error_cost(out, target))


def _optimizer(rng: Random) -> fluid.optimizer.Optimizer:
    """One that does not divide by gradients, which may be all rounding errors."""
    inputs = {"regularization": fluid.regularizer.L2Decay(1e-3)} if rng.random() < 0.3 else {}
    if rng.random() < 0.5:
        return fluid.optimizer.Momentum(0.01, 0.9, **inputs)
    return fluid.optimizer.SGD(0.05, **inputs)


def _floats(rng: Random, *shape: int) -> np.ndarray:
    return np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape).astype("f4")
