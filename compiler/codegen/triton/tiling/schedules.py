"""How many lanes and turns a program holds, chosen by shape.

A GPU of some hundred processors wants as many programs at least, and each of them threads enough
to wait for memory together. What is read more than once, by a second sum or by a store, is held
from the first reading on where it fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.triton.expressions import levels_of, loop_of, power_of_two, reach_of, roots_of
from compiler.codegen.triton.kernel_ir import KernelBody
from compiler.codegen.triton.tiling.strides import turns_lie_apart
from compiler.ir.dims import Dim, Size, evaluate, product

LANES = 1024
"""Elements of a program (thread block) without loops."""

ELEMENTS = 4096
"""KernelBody times turns that a program of four warps holds."""

HELD = 4 * ELEMENTS
"""Numbers that sixteen warps hold to read them but once; twice as many where there is one kind."""

LEAST = 1024
"""KernelBody times turns of a program below which more programs gain nothing."""

ENOUGH = 132
"""Programs that keep a large GPU busy."""

SIDE = 16
"""KernelBody at least that stand side by side where neighbours are read along lanes."""

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
    """Elements of a program; for each loop the iterations held at once, and whether that is all.

    Elements are along axis 0 and iterations along axis 1, or the other way where `across` is set.
    """

    lanes: int
    turns: tuple[int, ...] = ()
    whole: tuple[bool, ...] = ()
    across: bool = False
    warps: int = WARPS


def guess(size: Size) -> int:
    """About how much a size is."""
    return evaluate(size, dict.fromkeys(size.names, TYPICAL)) if isinstance(size, Dim) else size


def form_of(lanes: KernelBody) -> Form:
    """The form of a kernel."""
    if not lanes.loops:
        return Form(LANES)
    if lanes.ends:
        return _open_form(lanes)
    across = turns_lie_apart(lanes) and not _held_loops(lanes, "order")
    again = _read_again(lanes)
    sizes = [lanes.run(n) for n in range(len(lanes.loops))]
    most = [_most(lanes, n in again, across) for n in range(len(sizes))]
    whole = tuple(isinstance(s, int) and s <= n for s, n in zip(sizes, most, strict=True))
    turns = [
        power_of_two(size) if held and isinstance(size, int) else _step(size, across)
        for size, held in zip(sizes, whole, strict=True)
    ]
    elements = ELEMENTS if all(whole) or not _takes_moments(lanes) else ELEMENTS // 2
    count = _lanes(product(lanes.shape), max(turns), SIDE if across else 1, elements)
    room = max(1, elements // count)
    turns = [
        each if held else max(each, min(room, _bound(size)))
        for each, size, held in zip(turns, sizes, whole, strict=True)
    ]
    whole = tuple(isinstance(s, int) and s <= n for s, n in zip(sizes, turns, strict=True))
    warps = min(16, max(WARPS, count * max(turns) // (ELEMENTS // WARPS)))
    return Form(count, tuple(turns), whole, across, warps)


def _open_form(lanes: KernelBody) -> Form:
    """The form of a kernel some of whose loops end where data says: few turns, more lanes."""
    sizes = [lanes.run(n) for n in range(len(lanes.loops))]
    whole = tuple(
        isinstance(size, int) and size <= ELEMENTS and n not in lanes.ends
        for n, size in enumerate(sizes)
    )
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


def _most(lanes: KernelBody, again: bool, across: bool) -> int:
    """Turns that a program holds at once: of those it needs again, as many as fit."""
    if not again:
        return STEP[True] if across else ELEMENTS
    return (HELD // SIDE if across else HELD) * (1 + _has_one_kind(lanes))


def _has_one_kind(lanes: KernelBody) -> bool:
    """True where a turn reads one number, and needs few others beside it."""
    reach = reach_of(lanes)
    loads = [part for part in reach if part.fn == "load" and reach[part]]
    return len(loads) == 1 and not _takes_moments(lanes)


def _takes_moments(lanes: KernelBody) -> bool:
    """True where each turn keeps a count, a mean and squares of its own."""
    return any(part.extra == "moments" for level in levels_of(lanes.stores) for part in level)


def _read_again(lanes: KernelBody) -> set[int]:
    """The loops that are gone through more than once."""
    reach = reach_of(lanes)
    passes = [loop_of(parts[0]) for parts in levels_of(lanes.stores)]
    passes += {n for root in roots_of(lanes.stores) for n in reach[root]}
    return {n for n in passes if passes.count(n) > 1} | _held_loops(lanes, "scan", "order")


def _held_loops(lanes: KernelBody, *functions: str) -> set[int]:
    """The loops in which functions need all turns at once."""
    return {loop_of(part) for part in reach_of(lanes) if part.fn in functions}


def _lanes(count: Size, turns: int, least: int, elements: int) -> int:
    """Elements of a program: fewer where there would be too few programs."""
    width = max(least, elements // turns)
    if isinstance(count, Dim):
        return width
    width = min(width, power_of_two(count))
    while width > least and width * turns > LEAST and -(-count // width) < ENOUGH:
        width //= 2
    return width
