"""Memory: the arenas of one Executable, for the host and, for kernels, for the device.

Host and device buffers are packed separately; a module that uses only one has one arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import compress
from typing import Any, Protocol

from compiler.pack import Lifetime, Packing
from compiler.plan import Buffer
from compiler.support.dataclass import dataclass
from runtime.memory.packings import Packings


class GrowingBlock(Protocol):
    """The interface of a growing block of bytes, such as `runtime.memory.arena.Arena`."""

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
        """Return an array over the bytes starting at `offset`, with gaps if strides are passed."""
        ...

    def fresh(self, dtype: str, shape: Sequence[int]) -> Any:
        """Allocate a separate array."""
        ...


@dataclass(frozen=True)
class Placement:
    """The placement of every buffer: its memory (0 for the host, 1 for the device) and its
    offset.
    """

    sides: tuple[int, ...]
    offsets: tuple[int, ...]
    packings: tuple[Packing, ...]

    @property
    def height(self) -> int:
        """The total size of all arenas in bytes."""
        return sum(packing.height for packing in self.packings)

    @property
    def bound(self) -> int:
        """The most bytes alive at once, per memory, a lower bound of any packing."""
        return sum(packing.bound for packing in self.packings)


class Memory:
    """Packs the buffers of a module and returns arrays over them.

    `own_block`, if not None, returns a new device block: then every device buffer has a block of
    its size instead of a part of the arena, so that a memory checker sees accesses beyond its end.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        blocks: Sequence[GrowingBlock],
        own_block: Callable[[], GrowingBlock] | None = None,
    ) -> None:
        self._blocks = blocks
        self._own_block = own_block
        self._names = [buffer.name for buffer in buffers]
        self._sides = tuple(int(buffer.on_device) for buffer in buffers)
        groups = [list(self._of(side, buffers)) for side in range(len(blocks))]
        self._packings = [Packings(group) for group in groups]

    def _of(self, side: int, each: Sequence[Any]) -> Sequence[Any]:
        """Select the entries of the buffers in one memory."""
        return list(compress(each, (mine == side for mine in self._sides)))

    def find(self, lives: Sequence[Lifetime], sizes: Mapping[str, int]) -> Placement:
        """Place buffers of these lifetimes, which follow from the sizes."""
        pairs = enumerate(self._packings)
        return self._places(
            [packings.find(self._of(side, lives), sizes) for side, packings in pairs]
        )

    def exact(self, lives: Sequence[Lifetime]) -> Placement:
        """Place buffers of exactly these lifetimes; nothing is cached."""
        pairs = enumerate(self._packings)
        return self._places([packings.pack(self._of(side, lives)) for side, packings in pairs])

    def _places(self, packings: Sequence[Packing]) -> Placement:
        offsets = [iter(packing.offsets) for packing in packings]
        return Placement(self._sides, tuple(next(offsets[s]) for s in self._sides), tuple(packings))

    def outgrown(self, placement: Placement) -> bool:
        """Whether a block must grow for this placement."""
        pairs = zip(self._blocks, placement.packings, strict=True)
        return any(packing.height > block.nbytes for block, packing in pairs)

    def reserve(self, placement: Placement) -> None:
        """Grow the blocks as required; arrays returned before keep their memory."""
        for block, packing in zip(self._blocks, placement.packings, strict=True):
            block.reserve(packing.height)

    def taker(
        self,
        placement: Placement,
        lives: Sequence[Lifetime],
        own: MutableMapping[int, GrowingBlock],
    ) -> Callable[..., Any]:
        """Return the `take` of a module: an array over a buffer, from a byte offset, or without a
        buffer a separate device array.

        `strides`, in bytes, are supported for host arrays. Raises ValueError beyond the end of a
        buffer. Blocks of single buffers are added to `own`, by the buffer's number.
        """
        takes = [self._blocks[side].take for side in placement.sides]
        offsets = placement.offsets

        def take(
            buffer: int | None,
            dtype: str,
            shape: Sequence[int],
            offset: int = 0,
            strides: Sequence[int] | None = None,
        ) -> Any:
            if buffer is None:
                return self._blocks[1].fresh(dtype, shape)
            if self._own_block is not None and placement.sides[buffer]:
                if buffer not in own:
                    own[buffer] = self._own_block()
                    own[buffer].reserve(lives[buffer].size)
                return own[buffer].take(offset, dtype, shape, strides)
            array = takes[buffer](offsets[buffer] + offset, dtype, shape, strides)
            taken = offset + (array.nbytes if strides is None else _span(array, strides))
            if taken > lives[buffer].size:
                capacity, name = lives[buffer].size, self._names[buffer]
                raise ValueError(f"buffer {name!r} holds {capacity} bytes, not the {taken} taken")
            return array

        return take


def _span(array: Any, strides: Sequence[int]) -> int:
    """The bytes from the start of an array to its end, including gaps."""
    if not array.nbytes:
        return 0
    pairs = zip(array.shape, strides, strict=True)
    return sum((size - 1) * stride for size, stride in pairs) + array.itemsize
