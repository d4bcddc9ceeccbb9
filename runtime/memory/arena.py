"""Arena: the working memory of a module's steps, one block of bytes for all buffers.

The offsets of the buffers are computed elsewhere (`compiler.pack`); here bytes become arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from runtime.errors import TooLarge

ALIGN = 64
"""Alignment of the block in bytes: a cache line, and the widest vector register."""

POISON = 0xFF
"""The fill byte of poisoned memory: NaN as floats, -1 as integers."""


class Arena:
    """A block of bytes that grows and never shrinks; `block` allocates one.

    >>> arena = Arena()
    >>> arena.reserve(256)
    >>> arena.take(64, "float32", (2, 3)).shape
    (2, 3)
    """

    def __init__(
        self, poison: bool = False, block: Callable[[int], NDArray[np.uint8]] | None = None
    ) -> None:
        self._block = block or _aligned
        self._bytes = self._block(0)
        self._poison = poison

    @property
    def nbytes(self) -> int:
        """The size of the block in bytes."""
        return self._bytes.nbytes

    def reserve(self, nbytes: int) -> None:
        """Make the block at least this large; arrays taken before keep their memory.

        With `poison`, the block is filled, which exposes reads of uninitialised memory. Raises
        TooLarge if there is not enough memory; the block is empty then.
        """
        if nbytes > self.nbytes:
            self._bytes = self._block(0)  # releases the old block before allocating the new one
            self._bytes = self._block(nbytes)
        if self._poison:
            self._bytes.fill(POISON)

    def take(
        self,
        offset: int,
        dtype: DTypeLike,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> NDArray[Any]:
        """Return an array over the bytes starting at `offset`, with `strides` in bytes if passed.

        Raises ValueError if it would not fit.
        """
        if offset < 0:
            raise ValueError(f"an offset in an arena is not negative, as {offset} is")
        try:
            return np.ndarray(shape, dtype, self._bytes, offset, strides)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"an array of shape {tuple(shape)} at byte {offset} does not fit in {self.nbytes}"
            ) from error

    def fresh(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """Allocate a separate array."""
        return np.empty(shape, dtype)


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    """Allocate bytes aligned to `ALIGN`."""
    block = new_array("the memory of a step", (nbytes + ALIGN,), "uint8")
    start = -int(block.__array_interface__["data"][0]) % ALIGN
    return block[start : start + nbytes]


def new_array(what: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Allocate an uninitialised array; TooLarge if there is not enough memory.

    >>> new_array("x", (2, 2), "float32").shape
    (2, 2)
    """
    try:
        return np.empty(shape, dtype)
    except (MemoryError, OverflowError, ValueError) as error:
        raise TooLarge(
            f"{what}, {dtype} of shape {shape}, does not fit in memory",
            hint="a size of the program or of a feed may be wrong",
        ) from error
