"""`fluid.backward`: pairs, callbacks and gradients, as users ask for them."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.backward import append_backward, gradients
from fluid.framework import Parameter, Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def loss() -> Variable:
    hidden = layers.fc(layers.data("x", [3]), 4, act="tanh")
    return layers.mean(layers.fc(hidden, 1, bias_attr=False))


def names(pairs: list[Any]) -> list[str]:
    return [param.name for param, _ in pairs]


def test_pairs_are_in_order_of_creation() -> None:
    pairs = append_backward(loss())
    assert names(pairs) == ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0"]
    assert all(isinstance(param, Parameter) for param, _ in pairs)
    assert [grad.shape for _, grad in pairs] == [(3, 4), (4,), (4, 1)]


def test_a_list_of_parameters_chooses_pairs_and_not_ops() -> None:
    everything = loss()
    weight = default_main_program().global_block().var("fc_1.w_0")
    assert names(append_backward(everything, [weight, "fc_0.b_0"])) == ["fc_1.w_0", "fc_0.b_0"]
    assert "mul_grad" in [op.type for op in default_main_program().global_block().ops[-2:]]


def test_callbacks_see_each_op() -> None:
    seen: list[tuple[str, bool]] = []

    def note(block: Any, context: Any) -> None:
        op = context["__current_op_desc__"]
        seen.append(
            (op.type(), block.ops[-1].desc == op and context["fc_0.b_0@GRAD"] == "fc_0.b_0")
        )

    append_backward(loss(), callbacks=[note])
    assert len(seen) == 6
    assert all(good for _, good in seen)


def test_gradients_of_what_is_fed() -> None:
    x = layers.data("x", [2], append_batch_size=False, stop_gradient=False)
    y = layers.data("y", [2], append_batch_size=False, stop_gradient=False)
    (of_x, of_y) = gradients(layers.square(x), [x, y])
    assert of_y is None
    feed = {"x": np.array([1.0, -3.0], "float32"), "y": np.zeros(2, "float32")}
    result = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[of_x])[0]
    assert result.tolist() == [2.0, -6.0]


def test_gradients_times_what_is_given() -> None:
    x = layers.data("x", [2], append_batch_size=False, stop_gradient=False)
    seed = layers.fill_constant([2], "float32", 0.5)
    (of_x,) = gradients([layers.square(x)], x, target_gradients=[seed])
    result = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": np.array([1.0, -3.0], "float32")}, fetch_list=[of_x]
    )
    assert result[0].tolist() == [1.0, -3.0]


def test_bad_arguments() -> None:
    total = loss()
    with pytest.raises(
        TypeError, match="'loss' in append_backward must be Variable, but received str"
    ):
        append_backward("loss")
    with pytest.raises(TypeError, match="'callbacks' in append_backward must be list"):
        append_backward(total, callbacks=print)
    with pytest.raises(ValueError, match="'callback' must be a callable object"):
        append_backward(total, callbacks=[3])
    with pytest.raises(TypeError, match="'no_grad_set' in append_backward must be set"):
        append_backward(total, no_grad_set="fc_0.w_0")
    with pytest.raises(TypeError, match="'targets' in gradients must be Variable"):
        gradients("loss", total)
    with pytest.raises(ValueError, match="same number of target_gradients as targets"):
        gradients([total], [total], [total, total])
    with pytest.raises(
        ValueError,
        match=r"'fc_0\.w_0' has shape \(3, 4\), but its target 'mean_0\.tmp_0' has \(1,\)",
    ):
        gradients([total], [total], [default_main_program().global_block().var("fc_0.w_0")])
    assert default_main_program().global_block().ops[-1] is total.op
