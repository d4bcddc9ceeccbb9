"""How many lanes and turns a program holds, chosen by shape.

A GPU of some hundred processors wants as many programs at least, and each of them threads enough
to wait for memory together. What is read more than once, by a second sum or by a store, is held
from the first reading on where it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.triton.expressions import levels_of, loop_of, power_of_two, reach_of, roots_of
from compiler.codegen.triton.lanes import Lanes
from compiler.codegen.triton.strides import turns_lie_apart
from compiler.ir.dims import Dim, Size, evaluate, product

LANES = 1024
"""Lanes of a program without loops."""

ELEMENTS = 4096
"""Lanes times turns that a program of four warps holds."""

HELD = 4 * ELEMENTS
"""Turns that a program holds to read them but once."""

LEAST = 1024
"""Lanes times turns of a program below which more programs gain nothing."""

ENOUGH = 132
"""Programs that keep a large GPU busy."""

SIDE = 16
"""Lanes at least that stand side by side where neighbours are read along lanes."""

STEP = {False: 1024, True: 64}
"""Turns of a loop that is run through tile by tile, for turns side by side and apart."""

FEW = 32
"""Turns side by side of a loop whose end differs from lane to lane."""

WARPS = 4
"""Warps of a program, unless its launch says otherwise."""

TYPICAL = 64
"""What a size that is only a name is taken for where nothing but speed depends on it."""


@dataclass(frozen=True)
class Form:
    """Lanes of a program; of each loop the turns side by side, and whether these are all of it.

    Lanes stand in a column and turns in a row, or the other way where lanes are `across`.
    """

    lanes: int
    turns: tuple[int, ...] = ()
    whole: tuple[bool, ...] = ()
    across: bool = False
    warps: int = WARPS


def guess(size: Size) -> int:
    """About how much a size is."""
    return evaluate(size, dict.fromkeys(size.names, TYPICAL)) if isinstance(size, Dim) else size


def form_of(lanes: Lanes) -> Form:
    """The form of a kernel."""
    if not lanes.loops:
        return Form(LANES)
    if lanes.ends:
        return _open_form(lanes)
    across = turns_lie_apart(lanes)
    again = _read_again(lanes)
    sizes = [lanes.run(n) for n in range(len(lanes.loops))]
    whole = tuple(_is_held(size, n in again, across) for n, size in enumerate(sizes))
    turns = [
        power_of_two(size) if held and isinstance(size, int) else _step(size, across)
        for size, held in zip(sizes, whole, strict=True)
    ]
    count = _lanes(product(lanes.shape), max(turns), SIDE if across else 1)
    room = max(1, ELEMENTS // count)
    turns = [
        each if held else max(each, min(room, _bound(size)))
        for each, size, held in zip(turns, sizes, whole, strict=True)
    ]
    whole = tuple(isinstance(s, int) and s <= n for s, n in zip(sizes, turns, strict=True))
    warps = min(16, max(WARPS, count * max(turns) // (ELEMENTS // WARPS)))
    return Form(count, tuple(turns), whole, across, warps)


def _open_form(lanes: Lanes) -> Form:
    """The form of a kernel some of whose loops end where data says: few turns, more lanes."""
    sizes = [lanes.run(n) for n in range(len(lanes.loops))]
    whole = tuple(_is_held(s, False, False) and n not in lanes.ends for n, s in enumerate(sizes))
    turns = tuple(
        _bound(size) if held else FEW if n in lanes.ends else STEP[False]
        for n, (size, held) in enumerate(zip(sizes, whole, strict=True))
    )
    return Form(max(1, ELEMENTS // 4 // max(turns)), turns, whole)


def _bound(size: Size) -> int:
    """The power of two that is not below a size, as far as it is known."""
    return power_of_two(size) if isinstance(size, int) else ELEMENTS


def _step(size: Size, across: bool) -> int:
    return min(STEP[across], _bound(size))


def _is_held(size: Size, again: bool, across: bool) -> bool:
    """Whether a program holds all turns at once: those it needs again as far as they fit."""
    most = HELD if again else ELEMENTS
    if across:
        most = most // SIDE if again else STEP[True]
    return isinstance(size, int) and size <= most


def _read_again(lanes: Lanes) -> set[int]:
    """The loops that are gone through more than once."""
    reach = reach_of(lanes)
    passes = [loop_of(parts[0]) for parts in levels_of(lanes.stores)]
    passes += {n for root in roots_of(lanes.stores) for n in reach[root]}
    return {n for n in passes if passes.count(n) > 1}


def _lanes(count: Size, turns: int, least: int) -> int:
    """Lanes of a program: fewer where there would be too few programs."""
    width = max(least, ELEMENTS // turns)
    if isinstance(count, Dim):
        return width
    width = min(width, power_of_two(count))
    while width > least and width * turns > LEAST and -(-count // width) < ENOUGH:
        width //= 2
    return width
