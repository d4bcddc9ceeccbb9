"""The sizes of a Winograd convolution: tiles, blocks of them, and its product."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.tiles import Tiling, choose_tiling, extent
from compiler.ir.dims import Dim, Size, product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

BLOCK = Dim.named("block_of_tiles")
"""The number of the current block, an open size of kernels that run once for each block."""

CACHE = threshold(
    "winograd_block", 2_200_000, "bytes",
    "transformed elements and products of a block of tiles have no more", small=9000,
)  # fmt: skip
LAST_CACHE = threshold(
    "winograd_filters", 16_000_000, "bytes",
    "blocks of tiles are larger where transformed filters have more", small=512,
)  # fmt: skip
OPEN_TILES = threshold(
    "winograd_open_tiles", 192, "tiles",
    "images of open size are assumed to have so many; a block of theirs has no more", small=8,
)  # fmt: skip
OPEN_BLOCKS = (8, 4, 2, 1)
"""The blocks that those tiles may be divided into."""


@dataclass(frozen=True)
class WinogradTiles:
    """Tiles of m × m results; blocks have `rows` rows of tiles.

    If a size of the images is open, blocks have at most `rows` tiles instead, as even as possible.
    """

    machine: Machine
    element: Type
    m: int
    batch: Size
    size: tuple[Size, Size]
    padding: tuple[int, int, int, int]
    channels: int
    filters: int
    rows: int

    @staticmethod
    def make(
        machine: Machine, element: Type, m: int, batch: Size, size: tuple[Size, Size],
        padding: tuple[int, int, int, int], channels: int, filters: int,
    ) -> WinogradTiles:  # fmt: skip
        """Choose the number of rows of tiles, or of tiles, in a block."""
        one = WinogradTiles(machine, element, m, batch, size, padding, channels, filters, 1)
        if one.is_open:
            total = OPEN_TILES.value
            sizes = (total // block for block in OPEN_BLOCKS)
            rows = min(sizes, key=lambda rows: _traffic(one, rows, total, 1))
            return replace(one, rows=rows)
        height, width = map(_number, one.grid)
        total = one.total if isinstance(one.total, int) else height
        return replace(
            one, rows=min(range(1, total + 1), key=lambda r: _traffic(one, r, total, width))
        )

    @property
    def is_open(self) -> bool:
        """True if a size of the images is unknown at compile time."""
        return not all(isinstance(size, int) for size in self.size)

    @property
    def n(self) -> int:
        """Elements of a tile on each axis."""
        return self.m + 2

    @property
    def positions(self) -> int:
        """Products of a tile, channel and filter."""
        return self.n * self.n

    @property
    def output(self) -> tuple[Size, Size]:
        """Rows and columns of results."""
        top, bottom, left, right = self.padding
        return self.size[0] + top + bottom - 2, self.size[1] + left + right - 2

    @property
    def grid(self) -> tuple[Size, Size]:
        """Tiles of an image on each axis."""
        height, width = self.output
        return (height + (self.m - 1)) // self.m, (width + (self.m - 1)) // self.m

    @property
    def total(self) -> Size:
        """Rows of tiles of all images; all tiles if a size of the images is open."""
        return product([self.batch, *(self.grid if self.is_open else self.grid[:1])])

    @property
    def blocks(self) -> Size:
        """Blocks of tiles; the last one may be smaller."""
        return (self.total + (self.rows - 1)) // self.rows

    @property
    def block(self) -> Size:
        """The number of the block: an argument, unless there is but one."""
        return 0 if self.blocks == 1 else BLOCK

    @property
    def are_even(self) -> bool:
        """True if the last block is as large as the others."""
        total, height = self.total, self.grid[0]
        if self.is_open:
            return False
        sizes = [size for size in (height, total) if isinstance(size, int)]
        return any(size % self.rows == 0 for size in sizes)

    @property
    def number(self) -> Size:
        """Tiles of a block."""
        if self.is_open:
            return (self.total + (self.blocks - 1)) // self.blocks
        return self.rows * self.grid[1]

    @property
    def sizes(self) -> list[Size]:
        """What kernels must know when it is open."""
        sizes = [self.block, self.total]
        if self.is_open:
            sizes += [self.number, self.tiles_step, self.products_step]
            sizes += [*self.size, *self.grid, *self.output]
        return sizes

    def are_inside(self, axis: int) -> list[bool]:
        """For each element of a tile on an axis, whether it is on the image in every tile."""
        before, after = self.padding[2 * axis : 2 * axis + 2]
        size, count = self.size[axis], self.grid[axis]
        if not isinstance(size, int) or not isinstance(count, int):
            return [before <= q < 3 - after for q in range(self.n)]
        starts = [number * self.m - before for number in range(count)]
        return [all(0 <= start + q < size for start in starts) for q in range(self.n)]

    @property
    def padded_filters(self) -> int:
        """Filters in whole vectors."""
        lanes = self.machine.lanes(self.element)
        return -(-self.filters // lanes) * lanes

    @property
    def tiles_size(self) -> Size:
        """Elements of the transformed image of a block: [position][tile][channel]."""
        return self.tiles_step * self.positions

    @property
    def products_size(self) -> Size:
        """Elements of the products of a block: [position][tile][filter]."""
        return self.products_step * self.positions

    @property
    def tiles_step(self) -> Size:
        """Elements between positions of the transformed image."""
        return self._odd_lines(self.number * self.channels)

    @property
    def products_step(self) -> Size:
        """Elements between positions of the products."""
        return self._odd_lines(self.number * self.padded_filters)

    def _odd_lines(self, elements: Size) -> Size:
        """At least so many elements in an odd number of cache lines, for different cache sets."""
        line = 64 // self.element.nbytes
        lines = (elements + (line - 1)) // line
        return (lines // 2 * 2 + 1) * line

    @property
    def packed_size(self) -> int:
        """Elements of the transformed filters: [position][panel][channel][lane]."""
        return self.positions * self.channels * self.padded_filters

    @property
    def contraction(self) -> Contraction:
        """The product of a block, for each position."""
        tiles, channels, filters = self.number, self.channels, self.padded_filters
        names = {"a": self.element, "b": self.element, "out": self.element}
        strides = {"a": self.tiles_step, "b": channels * filters, "out": self.products_step}
        return Contraction(
            f"winograd{self.m}_products_{_text(tiles)}x{channels}x{filters}", self.element,
            (Axis(self.positions, strides),), (Axis(tiles, {"a": channels, "out": filters}),),
            (Axis(channels, {"a": 1}),), Axis(filters, {"out": 1}), names, panels="b",
        )  # fmt: skip

    @property
    def tiling(self) -> Tiling:
        """The tiling of the product."""
        return choose_tiling(self.machine, self.element, extent(self.contraction), True)

    @property
    def input_channels(self) -> Channels:
        """The channels as vectors."""
        return Channels(self.machine, self.element, self.channels)

    @property
    def output_channels(self) -> Channels:
        """The filters as vectors."""
        return Channels(self.machine, self.element, self.filters)

    @property
    def name(self) -> str:
        """The sizes as a part of a kernel's name."""
        sizes = (*self.size, *self.padding, self.channels, self.filters, self.rows)
        return "_".join([*map(_text, sizes), self.machine.name])


def _number(size: Size) -> int:
    assert isinstance(size, int)
    return size


def _text(size: Size) -> str:
    return str(size) if isinstance(size, int) else "n"


def _traffic(tiles: WinogradTiles, rows: int, total: int, width: int) -> float:
    """Bytes through the caches: filters once for each block, and elements of too large blocks.

    `total` rows of `width` tiles are cut into blocks of `rows` rows.
    """
    nbytes, positions = tiles.element.nbytes, tiles.positions
    blocks = -(-total // rows)
    filters = positions * tiles.channels * tiles.padded_filters * nbytes
    row = positions * width * (tiles.channels + tiles.padded_filters) * nbytes
    again = 1.0 if filters > LAST_CACHE.value else 0.2
    beyond = 3.0 if rows * row > CACHE.value else 1.0
    few = 1.0 + 6.0 / (rows * width)
    return blocks * (filters * again * few + rows * row * beyond)
