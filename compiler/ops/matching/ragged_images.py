"""Ragged batches of images stored as rows of sequences: sizes and offsets.

Image i of a batch has `channels` planes of the rows of one sequence by the rows of another.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.types import Array, TensorType
from compiler.ops.sequence.offsets import count_of, require_one_level
from compiler.ops.type_checks import differ


def ragged_sizes(tall: Array, wide: Array) -> list[tuple[int, int]]:
    """Return rows and columns of each image, from the offsets of both sequences."""
    return [(int(h), int(w)) for h, w in zip(np.diff(tall), np.diff(wide), strict=True)]


def offsets_by(sizes: list[tuple[int, int]], channels: int) -> Array:
    """Return the offsets of the images among all rows."""
    return np.cumsum([0, *(channels * h * w for h, w in sizes)]).astype(np.int64)


def require_pair(op: str, **lods: list[TensorType]) -> None:
    """Raise ShapeError unless slots have one LoD level each, with equal numbers of sequences."""
    for slot, lod in lods.items():
        require_one_level(op, slot, lod)
    counts = [count_of(lod[0]) for lod in lods.values()]
    if any(differ(counts[0], count) for count in counts[1:]):
        actual = " and ".join(f"{slot} {n}" for slot, n in zip(lods, counts, strict=True))
        raise ShapeError(f"{op}: {actual} sequences, expected equal numbers")


def column_like(type: TensorType) -> TensorType:
    """Return the type of a column with data-dependent length."""
    return type.with_shape((UNKNOWN, 1))


def require_column(op: str, type: TensorType) -> None:
    """Raise ShapeError unless X is a column."""
    if type.rank != 2 or differ(type.shape[1], 1):
        raise ShapeError(f"{op}: X is {type}, expected [rows, 1]")
