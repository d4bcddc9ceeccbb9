"""`minimize` in a branch: what is trained is decided while the program runs."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers, optimizer
from fluid.framework import Variable

pytestmark = pytest.mark.usefixtures("fresh_programs")


def start(value: float) -> fluid.ParamAttr:
    return fluid.ParamAttr(initializer=fluid.initializer.Constant(value))


def branches(distance: Any, first: Any, second: Any) -> Variable:
    """Return the loss of the branch that is taken: each computes it by itself and trains."""
    x, which = layers.data("x", [2]), layers.data("which", [1], append_batch_size=False)
    out = layers.fc(layers.fc(x, 2, param_attr=start(0.5)), 1, param_attr=start(1.0))

    def trained(made: Any) -> Variable:
        loss = layers.mean(distance(out))
        made.minimize(loss)
        return loss

    one = layers.fill_constant([1], "float32", 1.0)
    taken = layers.equal(which, one)
    return layers.cond(taken, lambda: trained(first), lambda: trained(second))


def test_the_branch_that_is_taken_trains() -> None:
    """Gradients go on into what was computed before the branch."""
    loss = branches(layers.square, optimizer.SGD(0.01), optimizer.Momentum(0.02, 0.5))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())

    def weights() -> np.ndarray:
        return np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())

    for which, moved in [(1.0, 0.01), (0.0, 0.02)]:
        before = weights()
        feed = {"x": np.ones((1, 2), "float32"), "which": np.array([which], "float32")}
        last = np.array(fluid.global_scope().find_var("fc_1.w_0").get_tensor())
        (value,) = executor.run(feed=feed, fetch_list=[loss])
        slope = 2 * float(value.ravel()[0]) ** 0.5 * last.ravel()
        np.testing.assert_allclose(before - weights(), [moved * slope] * 2, rtol=1e-5)
