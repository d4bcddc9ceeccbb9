"""Products of complex matrices."""

from __future__ import annotations

from fluid import layers
from fluid.eager.complex_variable import ComplexVariable

from ..helper import Operand, bilinear

__all__ = ["matmul"]


def matmul(
    x: Operand, y: Operand, transpose_x: bool = False, transpose_y: bool = False,
    alpha: float = 1.0, name: str | None = None,
) -> ComplexVariable:  # fmt: skip
    """`alpha` times the matrix product, of which at least one operand is complex."""
    return bilinear(
        lambda a, b: layers.matmul(a, b, transpose_x, transpose_y, alpha), x, y, "matmul"
    )
