"""Positions of sliding windows: which taps meet the image, and tiles of equal code."""

from __future__ import annotations

from dataclasses import replace

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.llvm_ir import Index, Value
from compiler.ir.windows import StaticWindow
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

Use = tuple[int, tuple[tuple[int, int], ...]]
"""An image position, and the pairs of a window of the tile and its tap that read it."""


UNROLLED_TAPS = threshold(
    "unrolled_taps", 1024, "taps and windows",
    "the code of a row of tiles has at most so many; wider windows are loops over their taps",
    small=16,
)  # fmt: skip


def taps_inside(
    window: StaticWindow, n: Integers, x: Index, size: Index
) -> tuple[Index, Index, Index]:
    """First tap, end of taps and first element at position x, on an axis of `size`."""
    start = n.sub(n.mul(x, window.stride), window.before)
    under = n.max(n.sub(0, start), 0)
    first = n.ceil_div(under, window.dilation)
    room = n.max(n.sub(n.mul(size, window.base_dilation), start), 0)
    end = n.min(n.ceil_div(room, window.dilation), window.kernel)
    if window.base_dilation > 1:
        first = _first_that_meets(window, n, start, first)
    place = n.add(start, n.mul(first, window.dilation))
    return first, end, n.div(n.max(place, 0), window.base_dilation)


def _first_that_meets(window: StaticWindow, n: Integers, start: Index, first: Index) -> Index:
    """The first tap from `first` on that meets an element; behind the kernel if none does.

    Tap u meets one if start + u * dilation is a multiple of the base dilation: u = -start /
    dilation modulo `period`, for starts that divide by what both dilations have in common.
    """
    base = window.base_dilation
    common = base // window.period
    phase = n.mod(n.add(start, base * (window.before // base + 1)), base)
    inverse = pow(window.dilation // common, -1, window.period)
    least = n.mul(n.sub(window.period, n.div(phase, common)), inverse)
    positive = window.period * (window.kernel + abs(window.before) + 1)
    ahead = n.mod(n.add(n.sub(least, first), positive), window.period)
    tap = n.add(first, ahead)
    return n.add(tap, n.mul(n.min(n.mod(phase, common), 1), window.kernel))


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


def known_tiles(window: StaticWindow, width: int) -> list[Tiles] | None:
    """Tiles of at most `width` windows that cover an axis of known size.

    None for an axis of open size, and where the code of the tiles would be too long.
    """
    limit = UNROLLED_TAPS.value
    if not isinstance(window.count, int) or not isinstance(window.size, int):
        return None
    if not window.count:
        return []
    width = -(-window.count // -(-window.count // width))
    width = -(-width // window.base_dilation) * window.base_dilation
    if width > limit or width * window.kernel > limit * window.base_dilation:
        return None
    tiles: list[Tiles] = []
    first = unrolled = 0
    while first < window.count:
        tile = _known_tile(window, first, min(width, window.count - first))
        number = _equal_tiles(window, tile)
        tiles.append(replace(tile, number=number))
        first += number * tile.width
        unrolled += _unrolled(tile)
        if unrolled > limit:
            return None
    return tiles


def _unrolled(tiles: Tiles) -> int:
    """The taps and windows in the code of a tile."""
    return tiles.width + sum(len(pairs) for _, pairs in tiles.uses)


def _equal_tiles(window: StaticWindow, tile: Tiles) -> int:
    """How many tiles from this one on read the same taps."""
    assert isinstance(tile.first, int) and isinstance(window.size, int)
    assert isinstance(window.count, int)
    number = (window.count - tile.first) // tile.width
    if number == 1:
        return 1
    for p in range(tile.width):
        for u in range(window.kernel):
            place = window.element(tile.first + p, u)
            if place is not None and place < window.size:
                end = window.size if place >= 0 else 0  # of where the tap stays
                number = min(number, -(-(end - place) // tile.step))
    return number


def _known_tile(window: StaticWindow, first: int, width: int) -> Tiles:
    base = (first * window.stride - window.before) // window.base_dilation
    pairs_by_place: dict[int, list[tuple[int, int]]] = {}
    for p in range(width):
        for u in range(window.kernel):
            place = window.element(first + p, u)
            if place is not None and isinstance(window.size, int) and 0 <= place < window.size:
                pairs_by_place.setdefault(place - base, []).append((p, u))
    uses = tuple((place, tuple(pairs)) for place, pairs in sorted(pairs_by_place.items()))
    return Tiles(first, 1, width, base, width * window.stride // window.base_dilation, uses)


def inner_tiles(
    window: StaticWindow, n: Integers, size: Index, count: Index, width: int
) -> tuple[Tiles, Value]:
    """Tiles of windows wholly inside an axis of open size, and the end of the last one."""
    assert window.base_dilation == 1
    lowest = max(0, -(-window.before // window.stride))
    first = n.min(lowest, count)
    room = n.add(n.sub(size, (window.kernel - 1) * window.dilation + 1), window.before)
    inside = n.div(n.max(n.add(room, window.stride), 0), window.stride)
    number = n.div(n.max(n.sub(n.min(inside, count), first), 0), width)
    pairs_by_place: dict[int, list[tuple[int, int]]] = {}
    for p in range(width):
        for u in range(window.kernel):
            pairs_by_place.setdefault(p * window.stride + u * window.dilation, []).append((p, u))
    uses = tuple((place, tuple(pairs)) for place, pairs in sorted(pairs_by_place.items()))
    base = n.sub(n.mul(first, window.stride), window.before)
    tiles = Tiles(first, number, width, base, width * window.stride, uses)
    return tiles, n.value(n.add(first, n.mul(number, width)))
