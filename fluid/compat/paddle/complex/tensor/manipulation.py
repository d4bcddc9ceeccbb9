"""Shapes of complex variables."""

from __future__ import annotations

from collections.abc import Sequence

from fluid import layers
from fluid.eager.complex_variable import ComplexVariable
from fluid.framework import Variable

from ..helper import Operand, linear

__all__ = ["reshape", "transpose"]


def reshape(
    x: Operand, shape: Sequence[int | Variable], inplace: bool = False, name: str | None = None
) -> ComplexVariable:
    """The elements in another shape, where -1 is computed and 0 copied; `x` itself if `inplace`."""
    reshaped = linear(lambda a: layers.reshape(a, shape, inplace=inplace), x, "reshape")
    if not inplace or not isinstance(x, ComplexVariable):
        return reshaped
    x.real, x.imag = reshaped.real, reshaped.imag
    return x


def transpose(x: Operand, perm: Sequence[int], name: str | None = None) -> ComplexVariable:
    """The dimensions in another order."""
    return linear(lambda a: layers.transpose(a, perm), x, "transpose")
