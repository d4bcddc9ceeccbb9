"""Proves that a barrier, or a wait for copies, of a kernel orders nothing.

All accesses of shared memory are written down with the number of barriers that the CTA passed
before. A barrier is not needed if no byte is accessed on both of its sides, until the next barriers
around it, by different threads, one of which writes. A copy is under way from its instruction to
the wait at which it lands; a wait is not needed if nobody accesses what lands there afterwards.
This is a plain comparison of all accesses, and shares no code with `tools.ptx.hazards`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tools.ptx.counters.observers import Access, observer
from tools.ptx.flow import Block
from tools.ptx.group import SHARED_START, Group, Mask
from tools.ptx.instructions import Instruction, Kernel
from tools.ptx.machine import Program
from tools.ptx.memory import Memory
from tools.ptx.values import Step, guarded


@dataclass
class _Trace:
    """Accesses of a group: rows of place, thread, number of barriers passed, whether it writes.

    `barriers` are the lines of those that were passed; `landed` are copies with the line of their
    wait and the number of rows before it.
    """

    barriers: list[int] = field(default_factory=list[int])
    rows: list[Any] = field(default_factory=list[Any])
    pending: list[Any] = field(default_factory=list[Any])
    groups: list[list[Any]] = field(default_factory=list["list[Any]"])
    landed: list[tuple[int, int, Any]] = field(default_factory=list["tuple[int, int, Any]"])


class Trace:
    """Writes down the accesses of shared memory; the `hazards` of a `Library`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._groups: list[tuple[Group, _Trace]] = []

    @contextmanager
    def launch(self, program: Program, memory: Memory) -> Generator[Program]:
        """Yield a program that is traced while it runs."""
        if program.kernel != self._kernel:
            yield program
            return
        pairs = zip(program.blocks, program.steps, strict=True)
        ends = {n: block.end for n, block in enumerate(program.blocks)}
        steps = tuple(self._block(block, own) for block, own in pairs)
        entered = {s: ends[n] for n, b in enumerate(program.blocks) for s in b.successors[-1:]}
        steps = tuple(self._after(entered.get(n), own) for n, own in enumerate(steps))
        yield replace(program, steps=steps)

    def _after(self, end: Instruction | None, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Note the line of a barrier where the block after it begins."""
        if end is None or end.opcode not in ("bar", "barrier") or end.has("warp"):
            return steps
        line = end.line

        def note(group: Group, mask: Mask) -> None:
            lines = self._of(group).barriers
            lines += [line] * (int(group.barriers.max()) - len(lines))

        return (note, *steps)

    def _block(self, block: Block, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        rewritten: list[Step] = []
        for instruction, step in zip(block.instructions, steps, strict=True):
            seen = observer(instruction)
            if seen is not None:
                rewritten.append(guarded(self._seen(seen), instruction))
            rewritten.append(step)
            if instruction.name.startswith(("cp.async.commit", "cp.async.wait")):
                rewritten.append(self._copies(instruction))
        return tuple(rewritten)

    def _seen(self, seen: Any) -> Step:
        return lambda group, mask: seen(group, mask, self._access)

    def _of(self, group: Group) -> _Trace:
        if not self._groups or self._groups[-1][0] is not group:
            self._groups.append((group, _Trace()))
        return self._groups[-1][1]

    def _access(self, group: Group, access: Access) -> None:
        if access.space != "shared":
            return
        trace, count = self._of(group), access.size
        start = group.shared.start[access.lanes] + access.at.astype("i8") - SHARED_START
        place = (start[:, None] + np.arange(count)).reshape(-1)
        lane = np.repeat(access.lanes, count)
        interval, writes = group.barriers[group.cta[lane]], np.full(len(place), access.writes)
        row = np.stack([place, lane, interval, writes])
        trace.rows.append(row)
        if access.instruction.opcode == "cp":
            trace.pending.append(row)

    def _copies(self, instruction: Instruction) -> Step:
        def follow(group: Group, mask: Mask) -> None:
            trace = self._of(group)
            if not instruction.has("wait_group"):
                trace.groups.append(trace.pending)
                trace.pending = []
            while len(trace.groups) > len(group.copies.groups):
                for row in trace.groups.pop(0):
                    trace.rows += _under_way(group, row)
                    trace.landed.append((instruction.line, len(trace.rows), row))

        return follow

    def barrier_orders_nothing(self, line: int) -> bool:
        """True if no access on one side of a barrier conflicts with one on the other."""
        return not any(_conflicts(trace, line) for _, trace in self._groups)

    def wait_is_for_nothing(self, line: int) -> bool:
        """True if what lands at a wait is not accessed afterwards."""
        return not any(
            at == line and any(np.isin(row[0], later[0]).any() for later in trace.rows[start:])
            for _, trace in self._groups
            for at, start, row in trace.landed
        )


def _under_way(group: Group, row: Any) -> list[Any]:
    """A copy as writes in the intervals between barriers that follow, up to that of its wait."""
    place, lane, interval, writes = row
    now = group.barriers[group.cta[lane]]
    most = int((now - interval).max(initial=0))
    later = [np.minimum(interval + n, now) for n in range(1, most + 1)]
    return [np.stack([place, lane, access, writes]) for access in later]


def _conflicts(trace: _Trace, line: int) -> bool:
    """True if intervals that a removed barrier joins have accesses of different threads."""
    if not trace.rows:
        return False
    place, lane, interval, writes = np.concatenate(trace.rows, 1)
    intervals = np.array([0, *(barrier != line for barrier in trace.barriers)], "i8").cumsum()
    joined = intervals[np.minimum(interval, len(intervals) - 1)]
    key = place * (int(joined.max()) + 1) + joined
    several = _differ(key, interval) & _differ(key, lane)
    return bool((several & np.isin(key, key[writes != 0])).any())


def _differ(key: Any, value: Any) -> Any:
    """Where the rows of one key have different values."""
    order = np.argsort(key, kind="stable")
    _, start, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    low, high = (f.reduceat(value[order], start) for f in (np.minimum, np.maximum))
    differs = np.empty(len(key), bool)
    differs[order] = (low != high)[inverse]
    return differs
