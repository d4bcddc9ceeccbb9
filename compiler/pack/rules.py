"""Verifier of packings: aligned, inside the arena, no overlap of values live at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from compiler.pack.life import Lifetime, PackError, Packing, aligned, expect_packable


def check(
    lives: Sequence[Lifetime], packing: Packing, align: int = 64, names: Sequence[str] = ()
) -> None:
    """Verify a packing in one sweep over time: aligned, inside the arena, no overlap.

    Raises PackError naming the invalid life, or the two that overlap: by `names`, or by index if
    there are none.

    >>> check([Lifetime(0, 2, 64), Lifetime(1, 3, 64)], Packing((0, 0), 64, 128), names=["x", "y"])
    Traceback (most recent call last):
    compiler.pack.life.PackError: 'x' and 'y' overlap: 'x' holds bytes [0, 64) in steps [0, 2), \
'y' holds bytes [0, 64) in steps [1, 3)
    """
    expect_packable(lives, align)
    if len(packing.offsets) != len(lives):
        raise PackError(f"{len(lives)} lives need as many offsets, got {len(packing.offsets)}")
    shown = [repr(name) for name in names] or [f"life {index}" for index in range(len(lives))]
    for life, offset, name in zip(lives, packing.offsets, shown, strict=True):
        _expect_inside(name, offset, aligned(life.size, align), packing.height, align)
    _expect_disjoint(lives, packing.offsets, align, shown)


def _expect_inside(name: str, offset: int, size: int, height: int, align: int) -> None:
    if offset % align:
        raise PackError(f"{name} must begin at a multiple of {align} bytes, got {offset}")
    if offset < 0 or offset + size > height:
        span = f"bytes [{offset}, {offset + size})"
        raise PackError(f"{name} must lie within {height} bytes, got {span}")


def _expect_disjoint(
    lives: Sequence[Lifetime], offsets: Sequence[int], align: int, shown: Sequence[str]
) -> None:
    """Keep the ranges live now sorted: a new one can only overlap one of its neighbours."""
    indices = [index for index, life in enumerate(lives) if life.size]
    tops = [offsets[index] + aligned(life.size, align) for index, life in enumerate(lives)]
    events = [(lives[i].stop, False, i) for i in indices] + [
        (lives[i].start, True, i) for i in indices
    ]
    live: list[tuple[int, int]] = []
    for _, begins, index in sorted(events):
        place = bisect_left(live, (offsets[index], index))
        if not begins:
            del live[place]
            continue
        for _, other in live[max(place - 1, 0) : place + 1]:
            if offsets[index] < tops[other] and offsets[other] < tops[index]:
                one, two = sorted((index, other))
                pair = [_describe(shown[i], lives[i], offsets[i]) for i in (one, two)]
                raise PackError(f"{shown[one]} and {shown[two]} overlap: {', '.join(pair)}")
        live.insert(place, (offsets[index], index))


def _describe(name: str, life: Lifetime, offset: int) -> str:
    span = f"bytes [{offset}, {offset + life.size})"
    return f"{name} holds {span} in steps [{life.start}, {life.stop})"
