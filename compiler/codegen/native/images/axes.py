"""Image axes under sliding windows: which taps meet the image, and tiles of window positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.llvm_ir import Index, Value
from compiler.ir.dims import Size
from compiler.support.thresholds import threshold

Use = tuple[int, tuple[tuple[int, int], ...]]
"""An image position, and the pairs of a window of the tile and its tap that read it."""


UNROLLED_TAPS = threshold(
    "unrolled_taps", 1024, "taps and windows",
    "the code of a row of tiles has at most so many; wider windows are loops over their taps",
    small=16,
)  # fmt: skip


@dataclass(frozen=True)
class WindowAxis:
    """An axis of `size` elements and the `count` windows on it.

    Tap u of window x meets element (x * stride - before + u * dilation) / up, where that is a
    whole number inside the axis. `up` > 1 is the gradient of a stride.
    """

    size: Size
    kernel: int
    stride: int
    dilation: int
    before: int
    count: Size
    up: int = 1

    @property
    def period(self) -> int:
        """The distance of two taps of one window that meet elements."""
        return self.up // math.gcd(self.up, self.dilation)

    @property
    def advance(self) -> int:
        """The elements between two taps that are `period` apart."""
        return self.period * self.dilation // self.up

    @property
    def reversed(self) -> WindowAxis:
        """The axis of the gradient: windows are the elements, taps are numbered backwards."""
        before = (self.kernel - 1) * self.dilation - self.before
        return WindowAxis(
            self.count, self.kernel, self.up, self.dilation, before, self.size, self.stride
        )

    def element(self, x: int, u: int) -> int | None:
        """The element that a tap meets, the ends of the axis not considered."""
        place = x * self.stride - self.before + u * self.dilation
        return None if place % self.up else place // self.up

    def taps(self, n: Integers, x: Index, size: Index) -> tuple[Index, Index, Index]:
        """First tap, end of taps and first element of window x, on an axis of `size`."""
        start = n.sub(n.mul(x, self.stride), self.before)
        under = n.max(n.sub(0, start), 0)
        first = n.ceil_div(under, self.dilation)
        room = n.max(n.sub(n.mul(size, self.up), start), 0)
        end = n.min(n.ceil_div(room, self.dilation), self.kernel)
        if self.up > 1:
            first = self._first_that_meets(n, start, first)
        place = n.add(start, n.mul(first, self.dilation))
        return first, end, n.div(n.max(place, 0), self.up)

    def _first_that_meets(self, n: Integers, start: Index, first: Index) -> Index:
        """The first tap from `first` on that meets an element; behind the kernel if none does.

        Tap u meets one if start + u * dilation is a multiple of `up`: u = -start / dilation modulo
        `period`, for starts that divide by what `up` and `dilation` have in common.
        """
        common = self.up // self.period
        phase = n.mod(n.add(start, self.up * (self.before // self.up + 1)), self.up)
        inverse = pow(self.dilation // common, -1, self.period)
        least = n.mul(n.sub(self.period, n.div(phase, common)), inverse)
        positive = self.period * (self.kernel + abs(self.before) + 1)
        ahead = n.mod(n.add(n.sub(least, first), positive), self.period)
        tap = n.add(first, ahead)
        return n.add(tap, n.mul(n.min(n.mod(phase, common), 1), self.kernel))


@dataclass(frozen=True)
class Tiles:
    """Adjacent tiles of `width` windows with equal code.

    The first begins at window `first`, its elements are numbered from `base`; each next one is
    `width` windows and `step` elements on.
    """

    first: Index
    number: Index
    width: int
    base: Index
    step: int
    uses: tuple[Use, ...]


def known_tiles(axis: WindowAxis, width: int) -> list[Tiles] | None:
    """Tiles of at most `width` windows that cover an axis of known size.

    None for an axis of open size, and where the code of the tiles would be too long.
    """
    limit = UNROLLED_TAPS.value
    if not isinstance(axis.count, int) or not isinstance(axis.size, int):
        return None
    width = -(-axis.count // -(-axis.count // width))
    width = -(-width // axis.up) * axis.up
    if width > limit or width * axis.kernel > limit * axis.up:
        return None
    tiles: list[Tiles] = []
    first = unrolled = 0
    while first < axis.count:
        tile = _known_tile(axis, first, min(width, axis.count - first))
        number = _equal_tiles(axis, tile)
        tiles.append(replace(tile, number=number))
        first += number * tile.width
        unrolled += _unrolled(tile)
        if unrolled > limit:
            return None
    return tiles


def _unrolled(tiles: Tiles) -> int:
    """The taps and windows in the code of a tile."""
    return tiles.width + sum(len(pairs) for _, pairs in tiles.uses)


def _equal_tiles(axis: WindowAxis, tile: Tiles) -> int:
    """How many tiles from this one on read the same taps."""
    assert isinstance(tile.first, int) and isinstance(axis.size, int)
    assert isinstance(axis.count, int)
    number = (axis.count - tile.first) // tile.width
    if number == 1:
        return 1
    for p in range(tile.width):
        for u in range(axis.kernel):
            place = axis.element(tile.first + p, u)
            if place is not None and place < axis.size:
                end = axis.size if place >= 0 else 0  # of where the tap stays
                number = min(number, -(-(end - place) // tile.step))
    return number


def _known_tile(axis: WindowAxis, first: int, width: int) -> Tiles:
    base = (first * axis.stride - axis.before) // axis.up
    pairs_by_place: dict[int, list[tuple[int, int]]] = {}
    for p in range(width):
        for u in range(axis.kernel):
            place = axis.element(first + p, u)
            if place is not None and isinstance(axis.size, int) and 0 <= place < axis.size:
                pairs_by_place.setdefault(place - base, []).append((p, u))
    uses = tuple((place, tuple(pairs)) for place, pairs in sorted(pairs_by_place.items()))
    return Tiles(first, 1, width, base, width * axis.stride // axis.up, uses)


def inner_tiles(
    axis: WindowAxis, n: Integers, size: Index, count: Index, width: int
) -> tuple[Tiles, Value]:
    """Tiles of windows wholly inside an axis of open size, and the end of the last one."""
    assert axis.up == 1
    lowest = max(0, -(-axis.before // axis.stride))
    first = n.min(lowest, count)
    room = n.add(n.sub(size, (axis.kernel - 1) * axis.dilation + 1), axis.before)
    inside = n.div(n.max(n.add(room, axis.stride), 0), axis.stride)
    number = n.div(n.max(n.sub(n.min(inside, count), first), 0), width)
    pairs_by_place: dict[int, list[tuple[int, int]]] = {}
    for p in range(width):
        for u in range(axis.kernel):
            pairs_by_place.setdefault(p * axis.stride + u * axis.dilation, []).append((p, u))
    uses = tuple((place, tuple(pairs)) for place, pairs in sorted(pairs_by_place.items()))
    base = n.sub(n.mul(first, axis.stride), axis.before)
    tiles = Tiles(first, number, width, base, width * axis.stride, uses)
    return tiles, n.value(n.add(first, n.mul(number, width)))
