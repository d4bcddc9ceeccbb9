"""The sizes of a Winograd convolution: tiles, blocks of them, and its product."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.tiles import Tiling, choose_tiling, extent
from compiler.ir.dims import Dim, Size

BLOCK = Dim.named("block_of_tiles")
"""The number of the current block, an open size of kernels that run once for each block."""

CACHE = 2_200_000
"""Bytes of transformed elements and products of a block that are read again soon enough."""

LAST_CACHE = 16_000_000
"""Bytes of transformed filters that are read again without a trip to memory."""


@dataclass(frozen=True)
class WinogradTiles:
    """Tiles of m × m results; blocks have `rows` rows of tiles."""

    machine: Machine
    element: Type
    m: int
    batch: Size
    size: tuple[int, int]
    padding: tuple[int, int, int, int]
    channels: int
    filters: int
    rows: int

    @staticmethod
    def make(
        machine: Machine, element: Type, m: int, batch: Size, size: tuple[int, int],
        padding: tuple[int, int, int, int], channels: int, filters: int,
    ) -> WinogradTiles:  # fmt: skip
        """Choose the number of rows of tiles in a block."""
        one = WinogradTiles(machine, element, m, batch, size, padding, channels, filters, 1)
        total = one.total if isinstance(one.total, int) else one.grid[0]
        rows = min(range(1, total + 1), key=lambda rows: _traffic(one, rows, total))
        return WinogradTiles(machine, element, m, batch, size, padding, channels, filters, rows)

    @property
    def n(self) -> int:
        """Elements of a tile on each axis."""
        return self.m + 2

    @property
    def positions(self) -> int:
        """Products of a tile, channel and filter."""
        return self.n * self.n

    @property
    def output(self) -> tuple[int, int]:
        """Rows and columns of results."""
        top, bottom, left, right = self.padding
        return self.size[0] + top + bottom - 2, self.size[1] + left + right - 2

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of an image on each axis."""
        height, width = self.output
        return -(-height // self.m), -(-width // self.m)

    @property
    def total(self) -> Size:
        """Rows of tiles of all images."""
        return self.batch * self.grid[0]

    @property
    def blocks(self) -> Size:
        """Blocks of rows of tiles; the last one may be smaller."""
        return (self.total + (self.rows - 1)) // self.rows

    @property
    def block(self) -> Size:
        """The number of the block: an argument, unless there is but one."""
        return 0 if self.blocks == 1 else BLOCK

    @property
    def are_even(self) -> bool:
        """True if the last block is as large as the others."""
        total = self.total
        return self.grid[0] % self.rows == 0 or (isinstance(total, int) and total % self.rows == 0)

    @property
    def number(self) -> int:
        """Tiles of a block."""
        return self.rows * self.grid[1]

    @property
    def padded_filters(self) -> int:
        """Filters in whole vectors."""
        lanes = self.machine.lanes(self.element)
        return -(-self.filters // lanes) * lanes

    @property
    def tiles_size(self) -> int:
        """Elements of the transformed image of a block: [position][tile][channel]."""
        return self.positions * self.tiles_step

    @property
    def products_size(self) -> int:
        """Elements of the products of a block: [position][tile][filter]."""
        return self.positions * self.products_step

    @property
    def tiles_step(self) -> int:
        """Elements between positions of the transformed image."""
        return self._odd_lines(self.number * self.channels)

    @property
    def products_step(self) -> int:
        """Elements between positions of the products."""
        return self._odd_lines(self.number * self.padded_filters)

    def _odd_lines(self, elements: int) -> int:
        """At least so many elements in an odd number of cache lines, for different cache sets."""
        line = 64 // self.element.nbytes
        return (-(-elements // line) | 1) * line

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
            f"winograd{self.m}_products_{tiles}x{channels}x{filters}", self.element,
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
        return "_".join([*map(str, sizes), self.machine.name])


def _traffic(tiles: WinogradTiles, rows: int, total: int) -> float:
    """Bytes through the caches: filters once for each block, and elements of too large blocks."""
    nbytes, positions = tiles.element.nbytes, tiles.positions
    blocks = -(-total // rows)
    filters = positions * tiles.channels * tiles.padded_filters * nbytes
    row = positions * tiles.grid[1] * (tiles.channels + tiles.padded_filters) * nbytes
    again = 1.0 if filters > LAST_CACHE else 0.2
    beyond = 3.0 if rows * row > CACHE else 1.0
    few = 1.0 + 6.0 / (rows * tiles.grid[1])
    return blocks * (filters * again * few + rows * row * beyond)
