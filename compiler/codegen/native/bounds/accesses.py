"""Checks of single loads and stores: lines of IR that replace one line.

Of each pointer `%p` the value `%p.bounds` has the bounds; see `checks.ll`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from compiler.codegen.native.bounds.ir_lines import expect, nbytes, operands, type_of, value_of

Lines = list[str]
Bounds = Callable[[str], str]
"""Returns the name of a pointer's bounds."""

LOAD, STORE = 0, 1
_MOST_LANES = 64
_LOAD = re.compile(r"  (%\S+) = load (.+), ptr (%[\w.]+), align \d+$")
_STORE = re.compile(r"  store (.+), ptr (%[\w.]+), align \d+$")
_MASKED = re.compile(r"  (?:%\S+ = )?call \S+.*? @llvm\.masked\.(\w+)\.\w+\.\w+\((.*)\)$")


def checked_access(line: str, number: int, bounds: Bounds) -> Lines | None:
    """A load or store with its check, which is number `number` of its function; None for another
    line.
    """
    if match := _LOAD.match(line):
        return _plain(line, number, bounds, match[2], match[3], LOAD)
    if match := _STORE.match(line):
        return _plain(line, number, bounds, match[1], match[2], STORE)
    if match := _MASKED.match(line):
        make = {"load": _masked, "store": _masked, "gather": _apart, "scatter": _apart}[match[1]]
        return make(line, number, bounds, match[1] in ("store", "scatter"), operands(match[2]))
    return None


def within(name: str, pointer: str, size: int, bounds: str, kind: int) -> str:
    """A call that returns what to access instead of a pointer."""
    return (
        f"  {name} = call preserve_allcc ptr @check_bounds(ptr {pointer}, i64 {size}, "
        f"ptr {bounds}, i64 {kind})"
    )


def _plain(
    line: str, number: int, bounds: Bounds, accessed: str, pointer: str, kind: int
) -> Lines:  # fmt: skip
    type, safe = type_of(accessed), f"%safe{number}"
    expect(line, type.element not in ("ptr", "atomic", "volatile"))
    check = within(safe, pointer, nbytes(type), bounds(pointer), kind)
    return [check, _replaced(line, pointer, safe)]


def _masked(line: str, number: int, bounds: Bounds, stores: bool, given: list[str]) -> Lines:
    """Contiguous lanes where a mask holds."""
    value, pointer, mask = (given[0], given[1], given[3]) if stores else (given[3], *given[:3:2])
    type, name, safe = type_of(value), value_of(pointer), f"%safe{number}"
    expect(line, type_of(pointer).element == "ptr" and type.lanes <= _MOST_LANES)
    lanes, bits = _bits(f"%lanes{number}", mask)
    check = (
        f"  {safe} = call preserve_allcc ptr @check_lanes(ptr {name}, i64 {lanes}, "
        f"i64 {type.nbytes}, ptr {bounds(name)}, i64 {int(stores)})"
    )
    return [*bits, check, _replaced(line, name, safe)]


def _bits(name: str, mask: str) -> tuple[str, Lines]:
    """The lanes of a mask as bits of a number."""
    count = type_of(mask).lanes
    if count == _MOST_LANES:
        return name, [f"  {name} = bitcast {mask} to i64"]
    lines = [f"  {name}.mask = bitcast {mask} to i{count}"]
    return name, [*lines, f"  {name} = zext i{count} {name}.mask to i64"]


def _apart(line: str, number: int, bounds: Bounds, stores: bool, given: list[str]) -> Lines:
    """Lanes at addresses of their own where a mask holds: those out of bounds are left out."""
    value, pointers, mask = (given[0], given[1], given[3]) if stores else (given[3], *given[:3:2])
    type, addresses = type_of(value), type_of(pointers)
    expect(line, addresses.element == "ptr" and type.lanes == addresses.lanes <= _MOST_LANES)
    home, size = bounds(value_of(pointers)), type.nbytes
    n, wide, bools = f"%lanes{number}", f"<{type.lanes} x i64>", f"<{type.lanes} x i1>"
    zeros = f"<{type.lanes} x i32> zeroinitializer"
    bad, bits = _bits(f"{n}.bad", f"{bools} {n}.wrong")
    check = [
        f"{n}.start = load i64, ptr {home}, align 8",
        f"{n}.count = call preserve_allcc i64 @check_offsets(ptr {home}, i64 {size})",
        f"{n}.start.one = insertelement {wide} poison, i64 {n}.start, i64 0",
        f"{n}.count.one = insertelement {wide} poison, i64 {n}.count, i64 0",
        f"{n}.starts = shufflevector {wide} {n}.start.one, {wide} poison, {zeros}",
        f"{n}.counts = shufflevector {wide} {n}.count.one, {wide} poison, {zeros}",
        f"{n}.at = ptrtoint {pointers} to {wide}",
        f"{n}.offset = sub {wide} {n}.at, {n}.starts",
        f"{n}.outside = icmp uge {wide} {n}.offset, {n}.counts",
        f"{n}.wrong = and {mask}, {n}.outside",
        f"{n}.inside = xor {bools} {n}.outside, splat (i1 true)",
        f"{n}.mask = and {mask}, {n}.inside",
    ]
    report = [
        f"{n}.first = call i64 @llvm.cttz.i64(i64 {bad}, i1 false)",
        f"{n}.lane = and i64 {n}.first, {type.lanes - 1}",
        f"{n}.shown = extractelement {wide} {n}.offset, i64 {n}.lane",
        f"call preserve_allcc void @check_none(i64 {bad}, ptr {home}, i64 {n}.shown, "
        f"i64 {size}, i64 {int(stores)})",
    ]
    lines = [
        *(f"  {check_line}" for check_line in check),
        *bits,
        *(f"  {report_line}" for report_line in report),
    ]
    place = line.rindex(mask)
    return [*lines, line[:place] + f"{bools} {n}.mask" + line[place + len(mask) :]]


def _replaced(line: str, pointer: str, safe: str) -> str:
    """A line with another pointer."""
    return re.sub(rf"\bptr {re.escape(pointer)}(?=,)", f"ptr {safe}", line, count=1)
