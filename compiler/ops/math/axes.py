"""Helpers for axes, sizes and indices, shared by the ops that move data.

Sizes and axes come from attributes or from tensors, whose values are data-dependent. Functions
used in op bodies are copied into generated modules, so they depend on NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.types import Array, Shape, TensorType

Sizes: TypeAlias = tuple[Any, ...]
"""A shape inside an op body: all sizes are known integers."""


def normalize_axis(op: str, axis: int, rank: int, name: str = "axis") -> int:
    """Return a non-negative axis; raise ShapeError if `axis` is out of range for `rank`.

    >>> normalize_axis("concat", -1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"{op}: {name} {axis} is out of range for an input of rank {rank}")
    return axis % rank


def slice_index_text(axis: int, text: str) -> str:
    """Return index source text that slices one axis and keeps all others whole.

    >>> slice_index_text(2, "1:3")
    '[:, :, 1:3]'
    """
    return f"[{':, ' * axis}{text}]"


def unknown_shape(rank: int) -> Shape:
    """Return a shape with a known rank and unknown sizes."""
    return (UNKNOWN,) * rank


def static_count(op: str, slot: str, numbers: TensorType) -> int:
    """Return the number of elements of an index tensor; raise ShapeError unless it is static."""
    count = numbers.numel
    if not isinstance(count, int):
        raise ShapeError(f"{op}: {slot} is {numbers}, expected a known number of elements")
    return count


def positive_or_unknown(sizes: Sequence[int]) -> Shape:
    """Replace non-positive sizes, to be read from a tensor at run time, by UNKNOWN."""
    return tuple(size if size > 0 else UNKNOWN for size in sizes)


def int_values(listing: Any, single: Any, attribute: Any) -> list[int]:
    """Return integers from one tensor, else from one-element tensors, else from the attribute."""
    if listing is not None:
        return [int(number) for number in listing.reshape(-1)]
    if single:
        return [int(array.reshape(-1)[0]) for array in single]
    return list(attribute)


def element_type(code: int) -> Any:
    """Return the NumPy dtype of a `VarType.Type` code."""
    names = "bool int16 int32 int64 float16 float32 float64".split()
    return np.dtype({20: "uint8", 21: "int8", 22: "bfloat16"}.get(code) or names[code])


def check_indices(positions: Array, size: int, op: str) -> None:
    """Raise ValueError unless all indices, int32 or int64, are in [0, size).

    They are viewed as unsigned, so that one comparison finds negative ones too.
    """
    if positions.size and positions.view(f"u{positions.itemsize}").max() >= size:
        wrong = positions[(positions < 0) | (positions >= size)].reshape(-1)[0]
        raise ValueError(f"{op}: index {wrong} is out of range, expected 0 to {size - 1}")


def check_optional_indices(positions: Array, size: int, op: str) -> None:
    """Raise ValueError unless all indices are in [0, size), or -1 for none."""
    check_indices(positions[positions != -1], size, op)


def identity_of(ufunc: Any, dtype: np.dtype) -> Any:
    """Return the maximum, or the minimum, of no numbers: no number of the type is beyond it."""
    if dtype.kind == "b":
        return ufunc is not np.maximum
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if ufunc is np.maximum else limits.max
    return -np.inf if ufunc is np.maximum else np.inf


def drop_axes(sizes: Sequence[Size], axes: Sequence[int]) -> Shape:
    """Return the sizes without the given axes; `[1]` if none remains (fluid has no 0-d tensors)."""
    return tuple(size for axis, size in enumerate(sizes) if axis not in axes) or (1,)


def broadcast_array(X: Array, sizes: Sizes) -> Array:
    """Broadcast an array to a shape."""
    return np.broadcast_to(X, sizes)


def zeros_shaped(sizes: Sizes, like: Array) -> Array:
    """Return zeros of the given shape with the dtype of `like`."""
    return np.zeros(sizes, like.dtype)
