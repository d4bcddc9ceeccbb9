"""Blocks of a vector received in chunks: a block within one message is not copied."""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array
from runtime.ps.wire.layout import BlockPiece, ShardLayout


class Assembly:
    """The last received chunks of a vector, and its blocks as arrays.

    A block within one chunk is a view of the message, which is read-only; one that spans several
    is copied into an array that the next step overwrites.
    """

    def __init__(self, layout: ShardLayout) -> None:
        self.layout = layout
        self._chunks: list[Array] = [
            np.zeros(stop - start, np.uint8) for start, stop in layout.chunks
        ]
        self._indices = {chunk: index for index, chunk in enumerate(layout.chunks)}
        self._blocks = {block.name: block for block in layout.blocks}
        self._pieces = {block.name: layout.pieces(block) for block in layout.blocks}
        self._copies = {
            name: np.empty(self._blocks[name].nbytes, np.uint8)
            for name, pieces in self._pieces.items()
            if len(pieces) > 1
        }

    def index(self, offset: int, nbytes: int) -> int | None:
        """The index of the chunk with these bytes of the vector; None if there is none."""
        return self._indices.get((offset, offset + nbytes))

    def put(self, index: int, data: Array) -> None:
        """Set the bytes of a chunk, uint8, which must not change afterwards."""
        self._chunks[index] = data

    def clear(self) -> None:
        """Release the messages: every byte is zero."""
        self._chunks = [np.zeros(len(chunk), np.uint8) for chunk in self._chunks]

    def has(self, name: str) -> bool:
        """Whether there is a block of this name."""
        return name in self._blocks

    def block(self, name: str) -> Array:
        """The elements of a block. Raises KeyError for an unknown name."""
        block, pieces = self._blocks[name], self._pieces[name]
        raw = self._copies[name] if len(pieces) > 1 else self._view(pieces)
        if len(pieces) > 1:
            for piece in pieces:
                raw[piece.here] = self._chunks[piece.chunk][piece.there]
        return raw.view(block.dtype).reshape(block.shape)

    def blocks(self) -> dict[str, Array]:
        """All blocks by name."""
        return {name: self.block(name) for name in self._blocks}

    def _view(self, pieces: list[BlockPiece]) -> Array:
        if not pieces:
            return np.empty(0, np.uint8)
        return self._chunks[pieces[0].chunk][pieces[0].there]
