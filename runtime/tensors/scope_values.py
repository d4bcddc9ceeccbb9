"""Values of scope variables other than tensors: lists of tensors and sparse rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler.ir.types import Array
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["LoDTensorArray", "LodRankTable", "SelectedRows"]


class LoDTensorArray(list[LoDTensor]):
    """LoDTensors in order, as a `LOD_TENSOR_ARRAY` variable holds them.

    >>> steps = LoDTensorArray()
    >>> steps.append(LoDTensor())
    >>> len(steps)
    1
    """

    def append(self, tensor: LoDTensor) -> None:
        """Add a tensor at the end; TypeError for anything else."""
        if not isinstance(tensor, LoDTensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a LoDTensorArray holds LoDTensors, not {type(tensor).__name__}")
        super().append(tensor)

    def _move_to_list(self) -> list[LoDTensor]:  # pyright: ignore[reportUnusedFunction]
        """Return the tensors as a list, and leave this one empty."""
        taken = list(self)
        self.clear()
        return taken


class SelectedRows:
    """Some rows of a larger tensor: row numbers, the total number of rows, and their values.

    Row `rows()[i]` of the whole is row `i` of `get_tensor()`; a number may occur twice.

    >>> sparse = SelectedRows([0, 4, 7], 10)
    >>> sparse.rows(), sparse.height()
    ([0, 4, 7], 10)
    """

    def __init__(self, rows: Sequence[int] = (), height: int = 0) -> None:
        self._rows = [int(row) for row in rows]
        self._height = int(height)
        self._tensor = LoDTensor()

    def rows(self) -> list[int]:
        """The row numbers."""
        return list(self._rows)

    def set_rows(self, rows: Sequence[int]) -> None:
        """Set the row numbers."""
        self._rows = [int(row) for row in rows]

    def height(self) -> int:
        """The number of rows of the whole tensor."""
        return self._height

    def set_height(self, height: int) -> None:
        """Set the number of rows of the whole tensor."""
        self._height = int(height)

    def get_tensor(self) -> LoDTensor:
        """The values of the rows; empty until it is set."""
        return self._tensor

    def numel(self) -> int:
        """The number of elements of the stored rows."""
        return prod(self._tensor.shape()) if self._tensor.array is not None else 0

    def sync_index(self) -> None:
        """Does nothing: rows are looked up by number when read."""


class LodRankTable:
    """Sequences in the order of their lengths: [sequences, 2] of index and length."""

    def __init__(self, table: Array) -> None:
        self._items: list[tuple[int, int]] = [(index, size) for index, size in table.tolist()]

    def items(self) -> list[tuple[int, int]]:
        """The index and the length of each sequence, longest first."""
        return list(self._items)
