"""`core.ops`: single ops in eager mode, with the arguments of release 1.8.5."""

import numpy as np
import pytest

import fluid
from fluid import core
from fluid.dygraph import to_variable
from fluid.framework import (
    _varbase_creator,  # pyright: ignore[reportPrivateUsage]
    recording_guard,
)


@pytest.fixture(autouse=True)
def eager_mode():
    with fluid.dygraph.guard():
        yield


def matrix(*shape: int):
    return to_variable(np.arange(np.prod(shape), dtype="float32").reshape(shape))


def test_output_is_made_or_given() -> None:
    x, out = matrix(2, 2), _varbase_creator(dtype="float32")
    expected = x.numpy() @ x.numpy().T
    assert core.ops.matmul(x, x, out, "transpose_Y", True) is out
    assert np.array_equal(out.numpy(), expected)
    assert np.array_equal(core.ops.matmul(x, x, "transpose_Y", True).numpy(), expected)
    assert core.ops.fill_constant(out, "shape", [3], "value", 2.0, "dtype", 5).numpy().tolist() == [
        2, 2, 2,
    ]  # fmt: skip


def test_lists_of_inputs_and_outputs() -> None:
    x = matrix(2, 4)
    left, right = core.ops.split(x, 2, "axis", 1, "num", 2)
    assert left.numpy().tolist() == [[0, 1], [4, 5]]
    joined = core.ops.concat([right, left], "axis", 1)
    assert joined.numpy().tolist() == [[2, 3, 0, 1], [6, 7, 4, 5]]


def test_optional_inputs_may_be_none() -> None:
    out, mean, _ = core.ops.layer_norm(matrix(2, 4), None, None, "begin_norm_axis", 1)
    assert np.allclose(out.numpy().mean(1), 0, atol=1e-6)
    assert mean.numpy().ravel().tolist() == [1.5, 5.5]


def test_gradients_and_updates() -> None:
    param = fluid.layers.create_parameter([2], "float32")
    before = param.numpy()
    core.ops.reduce_sum(core.ops.square(param), "reduce_all", True).backward()
    rate = to_variable(np.array([0.5], "float32"))
    core.ops.sgd(param, rate, param._grad_ivar(), param)
    assert np.allclose(param.numpy(), 0.0, atol=1e-6)
    assert not np.allclose(before, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: core.ops.matmul(x), r"ops.matmul\(X, Y, Out, .*: Y must be a variable, but .* noth"),
        (lambda x: core.ops.relu(np.ones(2)), r"X must be a variable, but received array"),
        (lambda x: core.ops.concat(3), r"X must be a list of variables, but received 3"),
        (lambda x: core.ops.split(x, "num", 2), r"number of variables of Out comes before"),
        (lambda x: core.ops.relu(x, "axis"), r"alternate, but a name has no value"),
        (lambda x: core.ops.relu(x, 1, 2), r"alternate, but 1 is no name"),
    ],
)  # fmt: skip
def test_wrong_arguments_raise(call, message) -> None:
    with pytest.raises(TypeError, match=message):
        call(matrix(2, 2))


def test_only_ops_of_eager_mode() -> None:
    assert {"matmul", "adam", "relu"} < set(dir(core.ops))
    assert "while" not in dir(core.ops)
    for name in ("while", "mat_mul"):
        with pytest.raises(AttributeError, match=f"core.ops has no '{name}'"):
            getattr(core.ops, name)


def test_outside_eager_mode_raises() -> None:
    x = matrix(2, 2)
    with (
        recording_guard(fluid.Program()),
        pytest.raises(AssertionError, match="call it within"),
    ):
        core.ops.relu(x)
