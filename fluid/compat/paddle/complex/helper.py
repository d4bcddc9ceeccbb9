"""Parts of complex variables and checks of operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fluid.eager.complex_variable import ComplexVariable
from fluid.framework import Variable

__all__ = [
    "Operand",
    "bilinear",
    "complex_variable_exists",
    "is_complex",
    "is_real",
    "linear",
    "parts",
]


Operand: TypeAlias = ComplexVariable | Variable
"""A complex variable, or a real one."""


def is_complex(x: object) -> bool:
    """Whether a value is a complex variable."""
    return isinstance(x, ComplexVariable)


def is_real(x: object) -> bool:
    """Whether a value is a real variable."""
    return isinstance(x, Variable)


def complex_variable_exists(inputs: Sequence[object], layer_name: str) -> None:
    """Raise ValueError unless one of the operands is complex."""
    if not any(is_complex(each) for each in inputs):
        which = "at least one input" if len(inputs) > 1 else "the input"
        raise ValueError(
            f"{which} of layer complex.{layer_name}() must be ComplexVariable: "
            "use the layer for real numbers instead"
        )


def parts(x: Operand) -> tuple[Variable, Variable | None]:
    """The real and the imaginary part; the latter is None for a real variable."""
    return (x.real, x.imag) if isinstance(x, ComplexVariable) else (x, None)


def linear(layer: Callable[[Variable], Variable], x: Operand, name: str) -> ComplexVariable:
    """Apply a linear layer to both parts. Raises ValueError for a real operand."""
    complex_variable_exists([x], name)
    real, imag = parts(x)
    assert imag is not None
    return ComplexVariable(layer(real), layer(imag))


def bilinear(
    layer: Callable[[Variable, Variable], Variable], x: Operand, y: Operand, name: str
) -> ComplexVariable:
    """Apply a layer that is linear in both operands, of which at least one is complex.

    Raises ValueError if none is.
    """
    complex_variable_exists([x, y], name)
    (a, b), (c, d) = parts(x), parts(y)
    if d is None:
        assert b is not None
        return ComplexVariable(layer(a, c), layer(b, c))
    if b is None:
        return ComplexVariable(layer(a, c), layer(a, d))
    return ComplexVariable(layer(a, c) - layer(b, d), layer(a, d) + layer(b, c))
