"""Comparisons of sizes, some of which are unknown at compile time."""

from __future__ import annotations

from compiler.ir.dims import Dim, Size
from compiler.ir.types import TensorType


def differ(a: Size, b: Size) -> bool:
    """True if two sizes are known to differ: two numbers, or two declared names.

    >>> differ(3, 4), differ(3, 3), differ(Dim.named("N"), Dim.named("M"))
    (True, False, True)
    """
    return a != b and _is_plain(a) == _is_plain(b) != ""


def _is_plain(size: Size) -> str:
    """The kind of a plain size; empty for unknown and computed ones."""
    if isinstance(size, int):
        return "number"
    return "name" if size.known and size == Dim.named(size.names[0]) else ""


def shapes_differ(a: TensorType, b: TensorType) -> bool:
    """True if two types have other ranks, or sizes that are known to differ."""
    return a.rank != b.rank or any(map(differ, a.shape, b.shape))
