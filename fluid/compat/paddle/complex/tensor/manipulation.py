"""Shapes of complex variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid import layers
from fluid.eager.complex_variable import ComplexVariable

from ..helper import linear

__all__ = ["reshape", "transpose"]


def reshape(
    x: Any, shape: Sequence[Any], inplace: bool = False, name: str | None = None
) -> ComplexVariable:
    """The elements in another shape, where -1 is computed and 0 copied; `x` itself if `inplace`."""
    reshaped = linear(lambda a: layers.reshape(a, shape, inplace=inplace), x, "reshape")
    if not inplace:
        return reshaped
    x.real, x.imag = reshaped.real, reshaped.imag
    return x


def transpose(x: Any, perm: Sequence[int], name: str | None = None) -> ComplexVariable:
    """The dimensions in another order."""
    return linear(lambda a: layers.transpose(a, perm), x, "transpose")
