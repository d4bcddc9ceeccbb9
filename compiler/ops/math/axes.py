"""Axes, sizes and positions, as ops that move elements around speak of them.

Some are attributes and some are tensors, whose numbers only data decides. What bodies use here is
carried into generated modules with them, so it needs NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.types import Array, Shape, TensorType

Sizes: TypeAlias = tuple[Any, ...]
"""A shape in a body, where every size is a number."""


def place(op: str, axis: int, rank: int, name: str = "axis") -> int:
    """An axis counted from the front; ShapeError where a tensor of `rank` axes has no such axis.

    >>> place("concat", -1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"{op}: {name} {axis} reaches beyond the {rank} axes of the input")
    return axis % rank


def at(axis: int, text: str) -> str:
    """An index that takes a part of one axis and all of every other.

    >>> at(2, "1:3")
    '[:, :, 1:3]'
    """
    return f"[{':, ' * axis}{text}]"


def open_shape(rank: int) -> Shape:
    """A shape of which only the number of axes is known."""
    return (UNKNOWN,) * rank


def listed_count(op: str, slot: str, numbers: TensorType) -> int:
    """How many numbers a tensor lists; ShapeError where that is not known before it runs."""
    count = numbers.numel
    if not isinstance(count, int):
        raise ShapeError(f"{op}: {slot} is {numbers}, expected a known number of elements")
    return count


def hoped(sizes: Sequence[int]) -> Shape:
    """Sizes of which those that are not positive wait for a tensor."""
    return tuple(size if size > 0 else UNKNOWN for size in sizes)


def whole_numbers(listing: Any, single: Any, attribute: Any) -> list[int]:
    """Numbers that stand in one tensor, or in a tensor each, or else in an attribute."""
    if listing is not None:
        return [int(each) for each in listing.reshape(-1)]
    if single:
        return [int(each.reshape(-1)[0]) for each in single]
    return list(attribute)


def element_type(code: int) -> Any:
    """The NumPy element type of a `VarType.Type` number."""
    names = "bool int16 int32 int64 float16 float32 float64".split()
    return np.dtype({20: "uint8", 21: "int8", 22: "bfloat16"}.get(code) or names[code])


def expect_inside(positions: Array, size: int, op: str) -> None:
    """ValueError where positions along an axis of some size lie beyond it, or are negative."""
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        wrong = positions[(positions < 0) | (positions >= size)].reshape(-1)[0]
        raise ValueError(f"{op}: index {wrong} is not from 0 to {size - 1}")


def without(sizes: Sequence[Size], axes: Sequence[int]) -> Shape:
    """The sizes of all other axes; `[1]` where none is left, for fluid has no empty shape."""
    return tuple(size for axis, size in enumerate(sizes) if axis not in axes) or (1,)


def spread(X: Array, sizes: Sizes) -> Array:
    """A tensor broadcast to a shape."""
    return np.broadcast_to(X, sizes)


def blank(sizes: Sizes, like: Array) -> Array:
    """Zeros in a shape, of the element type that another array has."""
    return np.zeros(sizes, like.dtype)
