"""Memory: the arenas that one Executable works in, the host's and, for kernels, the device's.

The buffers of each side are packed by themselves; a module that knows one side has one arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

from compiler.pack import Life, Packing
from compiler.plan import Buffer
from runtime.memory.packings import Packings


class Block(Protocol):
    """A block of bytes that grows, as `runtime.memory.arena.Arena` is one."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def reserve(self, nbytes: int) -> None:
        """Make it at least this large."""
        ...

    def take(
        self, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any:
        """An array over the bytes from `offset` on, with gaps where strides are given."""
        ...

    def fresh(self, dtype: str, shape: Sequence[int]) -> Any:
        """An array by itself."""
        ...


@dataclass(frozen=True)
class Places:
    """Where every buffer lies: its side (0 the host's, 1 the device's) and its offset there."""

    sides: tuple[int, ...]
    offsets: tuple[int, ...]
    packings: tuple[Packing, ...]

    @property
    def height(self) -> int:
        """Bytes of all arenas."""
        return sum(packing.height for packing in self.packings)

    @property
    def bound(self) -> int:
        """The most bytes alive at once, on either side, below which nothing goes."""
        return sum(packing.bound for packing in self.packings)


class Memory:
    """Packs the buffers of a module and hands out arrays over them."""

    def __init__(self, buffers: Sequence[Buffer], blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._sides = tuple(int(each.on_device) for each in buffers)
        groups = [list(self._of(side, buffers)) for side in range(len(blocks))]
        self._packings = [Packings(group) for group in groups]

    def _of(self, side: int, each: Sequence[Any]) -> Sequence[Any]:
        """What belongs to the buffers of one side."""
        return list(compress(each, (mine == side for mine in self._sides)))

    def find(self, lives: Sequence[Life], sizes: Mapping[str, int]) -> Places:
        """Places for buffers of these lives, given the sizes they follow from."""
        pairs = enumerate(self._packings)
        return self._places([each.find(self._of(side, lives), sizes) for side, each in pairs])

    def exact(self, lives: Sequence[Life]) -> Places:
        """Places for exactly these lives; nothing is kept."""
        pairs = enumerate(self._packings)
        return self._places([each.pack(self._of(side, lives)) for side, each in pairs])

    def _places(self, packings: Sequence[Packing]) -> Places:
        offsets = [iter(packing.offsets) for packing in packings]
        return Places(self._sides, tuple(next(offsets[s]) for s in self._sides), tuple(packings))

    def outgrown(self, places: Places) -> bool:
        """Whether a block must grow for these places."""
        pairs = zip(self._blocks, places.packings, strict=True)
        return any(packing.height > block.nbytes for block, packing in pairs)

    def reserve(self, places: Places) -> None:
        """Make room; arrays handed out before keep the memory they have."""
        for block, packing in zip(self._blocks, places.packings, strict=True):
            block.reserve(packing.height)

    def take(
        self,
        places: Places,
        buffer: int | None,
        dtype: str,
        shape: Sequence[int],
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> Any:
        """An array over a buffer, from a byte of it on; one of the device by itself where there is
        none. With `strides`, the places of an array of the host are so far apart.
        """
        if buffer is None:
            return self._blocks[1].fresh(dtype, shape)
        block = self._blocks[places.sides[buffer]]
        return block.take(places.offsets[buffer] + offset, dtype, shape, strides)
