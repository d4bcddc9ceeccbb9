"""SelectedRows: some rows of a table, as their values and row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index

from runtime.tensor import LoDTensor

__all__ = ["SelectedRows"]


class SelectedRows:
    """The values of some rows of a table of `height` rows (fluid 1.8.5 `SelectedRows`).

    Row numbers may repeat; such rows stand for their sum. Values are set in `get_tensor()`.
    """

    def __init__(self, rows: Sequence[int] = (), height: int = 0) -> None:
        self._rows = [index(row) for row in rows]
        self._height = index(height)
        self._values = LoDTensor()

    def rows(self) -> list[int]:
        """The row numbers, in the order of the values."""
        return list(self._rows)

    def set_rows(self, rows: Sequence[int]) -> None:
        """Replace the row numbers."""
        self._rows = [index(row) for row in rows]

    def height(self) -> int:
        """How many rows the table has."""
        return self._height

    def set_height(self, height: int) -> None:
        """Set how many rows the table has."""
        self._height = index(height)

    def get_tensor(self) -> LoDTensor:
        """The values, a row for each number; empty until they are set."""
        return self._values

    def numel(self) -> int:
        """How many elements the values have."""
        return prod(self._values.shape())

    def sync_index(self) -> None:
        """Nothing: row numbers are looked up as they are."""
