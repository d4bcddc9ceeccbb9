"""Gradients of what a program writes over, against finite differences.

`while_loop` writes its variables over, as the reference does, whose gradients then read the last
values in the place of those that the ops before the loop saw.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

PLACE = fluid.CPUPlace()
STEP = 1e-2
Net = Callable[[Any, Any, Any], Any]
NETS: list[Net] = []


def net(build: Net) -> Net:
    NETS.append(build)
    return build


def loop(h: Any, step: Callable[[Any], Any] = lambda v: layers.tanh(v * 0.7)) -> Any:
    """Three times a step, each from what the one before left in h."""
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    return layers.while_loop(lambda i, v: i < n, lambda i, v: [i + 1, step(v)], [i, h])[1]


@net
def loop_behind_an_activation(h, low, lower):
    return loop(h)


@net
def loop_behind_readers_of_both_kinds(h, low, lower):
    return layers.square(h) * loop(h) * layers.square(h)


@net
def loop_in_a_loop(h, low, lower):
    return loop(h, lambda v: loop(layers.tanh(v * 0.9)))


@net
def loop_behind_a_block_that_reads(h, low, lower):
    read = layers.cond(low, lambda: layers.square(h), lambda: h * 2.0)
    return read * loop(h)


@net
def loop_in_a_branch_that_may_not_run(h, low, lower):
    return layers.cond(low, lambda: loop(h), lambda: layers.square(h)) * h


@net
def loop_in_one_of_many_branches(h, low, lower):
    branches = [(lower, lambda: layers.tanh(h)), (lower, lambda: loop(h)), (low, lambda: h * 2.0)]
    return layers.case(branches, default=lambda: layers.square(h))


@net
def branches_in_a_loop(h, low, lower):
    return loop(h, lambda v: layers.cond(low, lambda: loop(v * 0.9), lambda: layers.square(v)))


@net
def assignment(h, low, lower):
    before = layers.square(h)
    layers.assign(layers.tanh(before) * h, h)
    return layers.square(h) + before


@net
def array_read_behind_a_counter(h, low, lower):
    """The loop counts its index up by an assignment, not by `increment`."""
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
    array = layers.array_write(h, i)
    first = layers.array_read(array, i)
    rest = layers.while_loop(lambda i, v: i < n, lambda i, v: [i + 1, v * first], [i, h * 1.0])[1]
    return rest + first


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_gradients_are_the_slopes(build: Net, sign: float, exe: Any, fresh_programs: Any) -> None:
    x, s = fluid.data("x", [3, 4], "float32"), fluid.data("s", [1], "float32")
    h = layers.fc(x, 4, act="tanh", param_attr="w", bias_attr=False)
    bounds = (layers.fill_constant([1], "float32", value) for value in (0.0, -5.0))
    loss = layers.reduce_sum(build(h, *(s < bound for bound in bounds)))
    plain = fluid.default_main_program().clone(for_test=True)
    fluid.backward.append_backward(loss)
    exe.run(fluid.default_startup_program())
    draw = np.random.RandomState(0)
    weight, along = draw.randn(4, 4) * 0.5, draw.randn(4, 4)
    feed = {"x": draw.randn(3, 4).astype("float32"), "s": np.array([sign], "float32")}
    tensor = fluid.global_scope().find_var("w").get_tensor()

    def value(program: Any, w: Any, fetched: Any) -> Any:
        tensor.set(w.astype("float32"), PLACE)
        return exe.run(program, feed=feed, fetch_list=[fetched])[0]

    ends = [value(plain, weight + STEP * way * along, loss)[0] for way in (1, -1)]
    slope = (value(None, weight, "w@GRAD") * along).sum()
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=0.02, abs=0.01)
