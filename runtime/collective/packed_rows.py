"""Messages of sparse gradients: the number of rows, their indices and their values."""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

WORD = 8
"""Bytes of the number of rows, and of an index; values begin at a multiple of it."""


@dataclass(frozen=True)
class RowMessages:
    """Messages with room for `capacity` rows of a type, of equal size on all ranks.

    A rank with more rows sends their number only.
    """

    capacity: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of a message in bytes."""
        return self._values + -(-self.capacity * self._row // WORD) * WORD

    @property
    def _values(self) -> int:
        return WORD * (1 + self.capacity)

    @property
    def _row(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def packed(self, rows: Array, values: Array) -> Array:
        """The message of a rank, uint8 [nbytes]; the rest of its room is 0."""
        message, count = np.zeros(self.nbytes, np.uint8), len(rows)
        message[:WORD].view(np.int64)[0] = count
        if count <= self.capacity:
            message[WORD : WORD * (1 + count)].view(np.int64)[...] = rows
            self._values_of(message, count)[...] = values
        return message

    def counts(self, messages: Array) -> list[int]:
        """The number of rows of each rank, of uint8 [ranks · nbytes]."""
        return [int(each[:WORD].view(np.int64)[0]) for each in self._each(messages)]

    def unpacked(self, messages: Array) -> tuple[Array, Array]:
        """The rows and values of all ranks in rank order, none of which has more than there is room
        for.
        """
        pairs = list(zip(self._each(messages), self.counts(messages), strict=True))
        rows = [each[WORD : WORD * (1 + count)].view(np.int64) for each, count in pairs]
        values = [self._values_of(each, count) for each, count in pairs]
        return np.concatenate(rows), np.concatenate(values)

    def _each(self, messages: Array) -> Array:
        return messages.reshape(-1, self.nbytes)

    def _values_of(self, message: Array, count: int) -> Array:
        part = message[self._values : self._values + count * self._row]
        return part.view(self.dtype).reshape(count, *self.shape)
