"""The layout of a server's parameter blocks in one vector of bytes, sent in chunks.

Trainers and servers compute the same layout from the same sharding plan, so messages identify their
content by offset only.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.errors import WireError

ALIGNMENT = 64
"""Alignment of every block in bytes, for aligned vector loads."""

CHUNK_BYTES = 2 << 20
"""Maximum data of one message: gRPC is slower with larger ones, and with much smaller ones."""


@dataclass(frozen=True)
class ParameterBlock:
    """A block of a parameter in a server's vector; `offset` and `nbytes` are in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def view(self, vector: Array) -> Array:
        """The block's elements in a server's vector of bytes (uint8), without a copy."""
        raw = vector[self.offset : self.offset + self.nbytes]
        return raw.view(self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class BlockPiece:
    """A part of a block in one chunk: bytes `here` of the block are bytes `there` of the chunk."""

    chunk: int
    here: slice
    there: slice

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.here.stop - self.here.start


@dataclass(frozen=True)
class ShardLayout:
    """All blocks of a server, and the chunks in which its vector is sent, as (start, stop)."""

    blocks: tuple[ParameterBlock, ...]
    nbytes: int
    chunks: tuple[tuple[int, int], ...]

    def pieces(self, block: ParameterBlock) -> list[BlockPiece]:
        """The parts of a block in the chunks that contain it."""
        begin, end = block.offset, block.offset + block.nbytes
        pieces: list[BlockPiece] = []
        for index, (start, stop) in enumerate(self.chunks):
            low, high = max(start, begin), min(stop, end)
            if low < high:
                here, there = slice(low - begin, high - begin), slice(low - start, high - start)
                pieces.append(BlockPiece(index, here, there))
        return pieces

    def block(self, name: str) -> ParameterBlock:
        """The block of a name; KeyError if there is none."""
        return {block.name: block for block in self.blocks}[name]


def make_layout(
    blocks: Iterable[tuple[str, str, tuple[int, ...]]], chunk: int = CHUNK_BYTES
) -> ShardLayout:
    """Lay out blocks, passed as (name, dtype, shape), in this order.

    Raises WireError for a name that occurs twice.

    >>> layout = make_layout([("w", "float32", (13, 1)), ("b", "float32", (1,))])
    >>> [block.offset for block in layout.blocks], layout.nbytes, layout.chunks
    ([0, 64], 68, ((0, 68),))
    """
    placed: list[ParameterBlock] = []
    end = 0
    names: set[str] = set()
    for name, dtype, shape in blocks:
        if name in names:
            raise WireError(f"{name!r} occurs twice among the blocks of a server; expected once")
        names.add(name)
        start = -(-end // ALIGNMENT) * ALIGNMENT
        placed.append(ParameterBlock(name, dtype, shape, start))
        end = start + placed[-1].nbytes
    starts = range(0, max(end, 1), chunk)
    return ShardLayout(
        tuple(placed), end, tuple((start, min(start + chunk, end)) for start in starts)
    )
