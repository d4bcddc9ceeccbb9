"""Comparisons of sizes, some of which are unknown at compile time."""

from __future__ import annotations

from math import prod

from compiler.errors import ShapeError
from compiler.ir.dims import Dim, Size
from compiler.ir.types import TensorType
from compiler.support.limits import MAX_BYTES


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


def addressable(name: str, type: TensorType) -> TensorType:
    """The type of a variable. Raises ShapeError if it is larger than MAX_BYTES; an empty axis
    counts as one element.
    """
    known = prod(max(size, 1) for size in type.shape if isinstance(size, int))
    if known * type.dtype.itemsize > MAX_BYTES and not type.is_array:
        raise ShapeError(f"variable {name!r} is {type}, larger than any memory")
    return type
