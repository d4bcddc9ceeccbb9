"""A batch of no rows: layers compute outputs of no rows on every target, in training too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers


def image() -> Any:
    return layers.data("image", [4, 8, 8])


def vector() -> Any:
    return layers.data("vector", [6])


def index() -> Any:
    return layers.data("index", [1], dtype="int64")


LAYERS: dict[str, Callable[[], Any]] = {
    "conv2d": lambda: layers.conv2d(image(), 3, 3, act="relu"),
    "conv2d_transpose": lambda: layers.conv2d_transpose(image(), 3, filter_size=3),
    "depthwise": lambda: layers.conv2d(image(), 4, 3, groups=4),
    "pool2d": lambda: layers.pool2d(image(), 3, "avg", 2, 1),
    "adaptive_avg": lambda: layers.adaptive_pool2d(image(), [3, 3], "avg"),
    "adaptive_max": lambda: layers.adaptive_pool2d(image(), [3, 3], "max"),
    "batch_norm": lambda: layers.batch_norm(image()),
    "layer_norm": lambda: layers.layer_norm(image()),
    "group_norm": lambda: layers.group_norm(image(), 2),
    "instance_norm": lambda: layers.instance_norm(image()),
    "maxout": lambda: layers.maxout(image(), 2),
    "pixel_shuffle": lambda: layers.pixel_shuffle(image(), 2),
    "resize": lambda: layers.resize_bilinear(image(), [5, 5]),
    "fc": lambda: layers.softmax(layers.fc(vector(), 3)),
    "topk": lambda: layers.topk(vector(), 2)[0],
    "embedding": lambda: layers.embedding(index(), [10, 4]),
    "gather": lambda: layers.gather(vector(), index()),
    "cross_entropy": lambda: layers.softmax_with_cross_entropy(vector(), index()),
}


@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("name", LAYERS)
def test_no_rows(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_TARGET", target)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = LAYERS[name]()
        fluid.optimizer.SGD(0.1).minimize(layers.mean(out))
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    feeds = [var for var in main.list_vars() if var.name in ("image", "vector", "index")]
    feed = {
        var.name: np.zeros((0, *var.shape[1:]), "int64" if var.name == "index" else "float32")
        for var in feeds
    }
    (value,) = executor.run(main, feed, [out], scope=scope)
    assert value.shape == (0, *out.shape[1:])


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_no_rows_leave_running_statistics_as_they_are(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would all be NaN: the mean of nothing."""
    monkeypatch.setenv("FLUID_TARGET", target)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        layers.batch_norm(image(), moving_mean_name="mean", moving_variance_name="variance")
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    for rows in (3, 0):
        before = [np.array(scope.find_var(name).get_tensor()) for name in ("mean", "variance")]
        executor.run(main, {"image": np.ones((rows, 4, 8, 8), "float32")}, [], scope=scope)
        after = [np.array(scope.find_var(name).get_tensor()) for name in ("mean", "variance")]
        assert all(np.array_equal(*pair) == (rows == 0) for pair in zip(before, after, strict=True))
