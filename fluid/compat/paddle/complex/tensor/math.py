"""Arithmetic, sums and traces of complex variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid import layers
from fluid.eager.complex_variable import ComplexVariable
from fluid.framework import Variable

from ..helper import Operand, bilinear, complex_variable_exists, linear, parts

__all__ = [
    "elementwise_add", "elementwise_div", "elementwise_mul", "elementwise_sub", "kron", "sum",
    "trace",
]  # fmt: skip


def elementwise_add(
    x: Operand, y: Operand, axis: int = -1, name: str | None = None
) -> ComplexVariable:
    """The sum, of which at least one operand is complex; y is broadcast to x along `axis`."""
    complex_variable_exists([x, y], "elementwise_add")
    return _combined(layers.elementwise_add, x, y, axis)


def elementwise_sub(
    x: Operand, y: Operand, axis: int = -1, name: str | None = None
) -> ComplexVariable:
    """The difference: at least one operand is complex; y is broadcast to x along `axis`."""
    complex_variable_exists([x, y], "elementwise_sub")
    return _combined(layers.elementwise_sub, x, y, axis)


def _combined(layer: Callable[..., Variable], x: Operand, y: Operand, axis: int) -> ComplexVariable:
    (a, b), (c, d) = parts(x), parts(y)
    b = layers.zeros_like(a) if b is None else b
    d = layers.zeros_like(c) if d is None else d
    return ComplexVariable(layer(a, c, axis=axis), layer(b, d, axis=axis))


def elementwise_mul(
    x: Operand, y: Operand, axis: int = -1, name: str | None = None
) -> ComplexVariable:
    """The product, of which at least one operand is complex; y is broadcast to x along `axis`."""
    return bilinear(lambda a, b: layers.elementwise_mul(a, b, axis=axis), x, y, "elementwise_mul")


def elementwise_div(
    x: Operand, y: Operand, axis: int = -1, name: str | None = None
) -> ComplexVariable:
    """The quotient, of which at least one operand is complex; y is broadcast to x along `axis`."""
    complex_variable_exists([x, y], "elementwise_div")
    c, d = parts(y)
    if d is None:
        return linear(lambda a: layers.elementwise_div(a, c, axis=axis), x, "elementwise_div")
    squares = c * c + d * d
    return elementwise_mul(x, ComplexVariable(c / squares, -d / squares), axis)


def kron(x: Operand, y: Operand, name: str | None = None) -> ComplexVariable:
    """The Kronecker product, of which at least one operand is complex."""
    return bilinear(lambda a, b: layers.kron(a, b), x, y, "kron")


def sum(
    input: Operand, dim: int | Sequence[int] | None = None, keep_dim: bool = False,
    name: str | None = None,
) -> ComplexVariable:  # fmt: skip
    """The sum over some dimensions, or over all."""
    return linear(lambda a: layers.reduce_sum(a, dim=dim, keep_dim=keep_dim), input, "sum")


def trace(
    input: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1, name: str | None = None
) -> ComplexVariable:
    """The sum along the diagonals of two dimensions."""
    return linear(lambda a: layers.trace(a, offset, dim1, dim2), input, "trace")
