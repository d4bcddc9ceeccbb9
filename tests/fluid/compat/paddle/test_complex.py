"""`paddle.complex`: layers of complex variables, compared with NumPy."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import fluid
from fluid.compat.paddle import complex as cpx
from fluid.compat.paddle.complex.tensor.math import sum as complex_sum
from fluid.dygraph import guard, to_variable
from fluid.eager.complex_variable import ComplexVariable

RNG = np.random.default_rng(0)
A = (RNG.random((3, 3)) + 1j * RNG.random((3, 3))).astype("complex64")
B = (RNG.random((3, 3)) + 1j * RNG.random((3, 3))).astype("complex64")
R = (RNG.random((3, 3)) + 0.5).astype("float32")

BOTH = [
    (cpx.elementwise_add, np.add),
    (cpx.elementwise_sub, np.subtract),
    (cpx.elementwise_mul, np.multiply),
    (cpx.elementwise_div, np.divide),
    (cpx.matmul, np.matmul),
    (cpx.kron, np.kron),
]


@pytest.mark.parametrize(("layer", "expected"), BOTH)
def test_two_operands_of_which_one_is_complex(
    layer: Callable[..., Any], expected: Callable[..., Any]
) -> None:
    with guard():
        for x, y in ((A, B), (A, R), (R, A)):
            result = layer(to_variable(x), to_variable(y)).numpy()
            assert result.dtype == np.complex64
            assert np.allclose(result, expected(x, y), rtol=1e-4)
        with pytest.raises(ValueError, match="at least one input of layer complex"):
            layer(to_variable(R), to_variable(R))


ONE: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda x: cpx.reshape(x, [9, -1]), A.reshape(9, 1)),
    (lambda x: cpx.transpose(x, [1, 0]), A.T),
    (lambda x: cpx.trace(x, offset=1), [np.trace(A, offset=1)]),
    (lambda x: complex_sum(x, dim=1, keep_dim=True), A.sum(1, keepdims=True)),
]


@pytest.mark.parametrize(("layer", "expected"), ONE)
def test_one_operand(layer: Callable[[Any], Any], expected: Any) -> None:
    with guard():
        assert np.allclose(layer(to_variable(A)).numpy(), expected)
        with pytest.raises(ValueError, match="the input of layer complex"):
            layer(to_variable(R))


def test_a_complex_variable() -> None:
    with guard():
        x: Any = to_variable(A, name="x")
        assert isinstance(x, ComplexVariable)
        assert (x.dtype, x.shape) == ("complex64", [3, 3])
        assert x.name == {"real": "x.real", "imag": "x.imag"}
        assert to_variable(x) is x
        x.name = ("r", "i")
        assert x.name == {"real": "r", "imag": "i"}
        with pytest.raises(ValueError, match="a name is"):
            setattr(x, "name", 3)  # noqa: B010 - of a wrong type
        assert str(x).startswith("REAL: ")
        assert cpx.reshape(x, [9], inplace=True) is x and x.shape == [9]
        with pytest.raises(AssertionError, match="shapes"):
            ComplexVariable(to_variable(R), to_variable(R[0]))
        real = fluid.layers.reduce_sum(cpx.elementwise_mul(x, x).real)
        assert np.isclose(cast(Any, real).numpy()[0], (A * A).sum().real, rtol=1e-4)
