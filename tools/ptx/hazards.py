"""Hazards between threads, looked for while a kernel runs: results that depend on their order.

Threads of the machine run in step, so a missing barrier changes no number. `Hazards` remembers for
each byte which thread, or CTA, read and wrote it last, and raises Hazard for

- an access of shared memory beside one of another thread of the CTA, one of them a write, without a
  barrier between (within a warp, `bar.warp.sync` is enough);
- different values that threads write to one byte of shared memory by one instruction;
- a read of shared memory that nobody wrote;
- an access of global memory beside one of another CTA of the launch, one of them a write;
- a read of global memory that nobody wrote since it was allocated (`tools.ptx.unwritten`).

Writing the value that another thread wrote is none: Triton's layouts repeat elements in several
threads. A copy to shared memory is a write by its thread, from its instruction to its wait.
Atomics are not looked at. One that acquires and releases orders what a CTA did before it: accesses
of two CTAs are compared if each had executed as many of these, as between two barriers of a grid.
Kernels that order their CTAs by acquiring or releasing alone are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from compiler.ir.types import Array
from tools.ptx.access import chosen
from tools.ptx.checks import fault
from tools.ptx.counters.observers import Access, Observer, observer
from tools.ptx.errors import Hazard
from tools.ptx.flow import Block
from tools.ptx.group import SHARED_START, WARP, Group, Mask
from tools.ptx.instructions import BYTES, Instruction, Vector
from tools.ptx.machine import Program
from tools.ptx.memory import Memory
from tools.ptx.unwritten import expect_written
from tools.ptx.values import Read, Step, guarded, reader

_ORDERING = ("acquire", "release")
_SEVERAL = -2
"""Instead of a thread or CTA: several."""
_IN_FLIGHT = -1
"""Instead of a number of barriers: a copy that was not waited for."""


class Hazards:
    """Looks for hazards in the launches of a `Library`."""

    def __init__(self) -> None:
        self._programs: dict[int, tuple[Program, Program]] = {}
        self._seen: list[tuple[Access, Array | None]] = []
        self._shared: _SharedShadow | None = None
        self._memory: Memory | None = None
        self._global: _GlobalShadow | None = None

    @contextmanager
    def launch(self, program: Program, memory: Memory) -> Generator[Program]:
        """Yield a program that is watched while it runs."""
        self._shared = None
        self._memory = None if _orders_ctas(program) else memory
        self._global = None
        yield self._watched(program)

    def _watched(self, program: Program) -> Program:
        entry = self._programs.get(id(program))
        if entry is None:
            pairs = zip(program.blocks, program.steps, strict=True)
            steps = tuple(self._block(block, own) for block, own in pairs)
            entry = self._programs[id(program)] = (program, replace(program, steps=steps))
        return entry[1]

    def _block(self, block: Block, steps: Sequence[Step]) -> tuple[Step, ...]:
        rewritten: list[Step] = []
        for instruction, step in zip(block.instructions, steps, strict=True):
            seen = observer(instruction)
            if instruction.name.startswith(("cp.async.commit", "cp.async.wait")):
                rewritten += [step, self._copies(instruction)]
            elif seen is None:
                rewritten.append(step)
            elif instruction.opcode in ("atom", "red"):
                order = [guarded(self._order, instruction)] if instruction.has("acq_rel") else []
                rewritten += [guarded(self._read(seen), instruction), step, *order]
            else:
                rewritten += [
                    guarded(self._before(seen, instruction), instruction),
                    step,
                    self._after,
                ]
        return tuple(rewritten)

    def _before(self, seen: Observer, instruction: Instruction) -> Step:
        """Note what an instruction is going to access, and what it writes if registers tell."""
        parts = _sources(instruction)

        def note(group: Group, access: Access) -> None:
            values = [chosen(group, read(group), access.lanes) for read in parts]
            written = np.stack(values, 1).view("u1") if values and access.writes else None
            self._seen.append((access, written))
            self._check(group, access, written)

        return lambda group, mask: seen(group, mask, note)

    def _read(self, seen: Observer) -> Step:
        """Check what an atomic reads; others may access it at the same time."""

        def check(group: Group, access: Access) -> None:
            if access.space == "global":
                expect_written(group, access)

        return lambda group, mask: seen(group, mask, check)

    def _copies(self, instruction: Instruction) -> Step:
        """Follow which asynchronous copies land: threads that wait have written their bytes."""

        def follow(group: Group, mask: Mask) -> None:
            if self._shared is not None and self._shared.group is group:
                self._shared.commit(not instruction.has("wait_group"))
                self._shared.land(len(group.copies.groups))

        return follow

    def _after(self, group: Group, mask: Mask) -> None:
        """Remember who accessed what."""
        seen, self._seen = self._seen, []
        for access, written in seen:
            if access.space == "shared" and access.writes and written is not None:
                _expect_one_value(group, access, written)

    def _check(self, group: Group, access: Access, written: Array | None) -> None:
        if not len(access.lanes):
            return
        if access.space == "shared":
            if self._shared is None or self._shared.group is not group:
                self._shared = _SharedShadow(group)
            self._shared.check(access, written)
            return
        if not access.writes:
            expect_written(group, access)
        if (shadow := self._global_shadow()) is not None:
            shadow.check(group, access, written)

    def _order(self, group: Group, mask: Mask) -> None:
        """Note that lanes execute an atomic that orders the accesses of their CTAs."""
        if (shadow := self._global_shadow()) is not None:
            shadow.order(np.unique(group.numbers if mask is None else group.numbers[mask]))

    def _global_shadow(self) -> _GlobalShadow | None:
        """Accesses of the launch's CTAs; None if they are not compared."""
        if self._global is None and self._memory is not None:
            self._global = _GlobalShadow(self._memory)  # a module's variables have memory by now
        return self._global


class _SharedShadow:
    """Who accessed each byte of shared memory last, and after how many barriers."""

    def __init__(self, group: Group) -> None:
        size = group.shared.bytes.size
        self.group = group
        self._writer, self._reader = np.full(size, -1, "i4"), np.full(size, -1, "i4")
        self._written, self._read = np.zeros((2, size), "i4"), np.zeros((2, size), "i4")
        self._known = np.zeros(size, bool)
        self._pending: list[tuple[Array, Array]] = []
        self._groups: list[list[tuple[Array, Array]]] = []

    def commit(self, closes: bool) -> None:
        """Close a group of copies."""
        if closes:
            self._groups.append(self._pending)
            self._pending = []

    def land(self, left: int) -> None:
        """Let all but the latest groups of copies be written now, by the threads that wait."""
        while len(self._groups) > left:
            for place, lane in self._groups.pop(0):
                self._written[:, place] = self._now(lane)

    def _now(self, lane: Array) -> Array:
        """The barriers of each lane's CTA and of its warp so far."""
        return np.stack([self.group.barriers[self.group.cta[lane]],
                         self.group.warp_syncs[lane // WARP]])  # fmt: skip

    def check(self, access: Access, written: Array | None) -> None:
        """Compare an access with earlier ones, and remember it."""
        group = self.group
        place, lane = _bytes(group, access)
        now = self._now(lane)
        beside_write = self._beside(self._writer[place], self._written[:, place], lane, now)
        if not access.writes:
            self._expect(access, lane, self._known[place], "is shared memory that nobody wrote")
            self._expect(access, lane, ~beside_write, _READ.format("thread"))
            several = (self._reader[place] >= 0) & (self._reader[place] != lane)
            several &= (self._read[:, place] == now).all(0)
            _note(self._reader, place, np.where(several, _SEVERAL, lane))
            self._read[:, place] = now
            return
        beside_read = self._beside(self._reader[place], self._read[:, place], lane, now)
        same = False if written is None else group.shared.bytes[place] == written.reshape(-1)
        self._expect(access, lane, same | ~beside_write, _WRITE.format("thread", "wrote"))
        self._expect(access, lane, ~beside_read, _WRITE.format("thread", "read"))
        self._writer[place], self._written[:, place], self._known[place] = lane, now, True
        if access.instruction.opcode == "cp":
            self._written[0, place] = _IN_FLIGHT
            self._pending.append((place, lane))

    def _beside(self, other: Array, when: Array, lane: Array, now: Array) -> Array:
        """Where another lane's access is not ordered before this one by a barrier."""
        flies = when[0] == _IN_FLIGHT
        recent = (other != -1) & (other != lane) & ((when[0] == now[0]) | flies)
        in_warp = (other >= 0) & (other // WARP == lane // WARP) & (when[1] < now[1])
        return recent & ~(in_warp & ~flies)

    def _expect(self, access: Access, lane: Array, holds: Array, what: str) -> None:
        _expect(self.group, access, lane, holds, what)


class _GlobalShadow:
    """Which CTA of a launch accessed each byte of global memory: its number plus 1; 0 is none.

    And after how many atomics that order its accesses.
    """

    def __init__(self, memory: Memory) -> None:
        self._starts, stops = memory.spans()
        sizes = (stops - self._starts).astype("i8")
        self._first = np.cumsum(sizes) - sizes
        self._memory = memory
        self._writer = np.zeros(int(sizes.sum()), "i4")
        self._reader = np.zeros(int(sizes.sum()), "i4")
        self._value = np.zeros(int(sizes.sum()), "u1")
        self._written, self._read = np.zeros((2, int(sizes.sum())), "i4")
        self._orders: Counter[int] = Counter()

    def order(self, ctas: Array) -> None:
        """Count an atomic that orders the accesses of CTAs."""
        self._orders.update(map(int, ctas))

    def _now(self, group: Group) -> Array:
        """The ordering atomics of each lane's CTA so far."""
        numbers: list[int] = group.numbers[:: group.pitch].tolist() if self._orders else []
        counts = [self._orders[number] for number in numbers] or np.zeros(group.ctas)
        return np.repeat(np.asarray(counts, "i4"), group.pitch)

    def check(self, group: Group, access: Access, written: Array | None) -> None:
        """Compare an access with those of other CTAs, and remember it."""
        if self._memory.outside(access.at, access.size, access.writes).any():
            return  # which the access itself reports
        at = (access.at[:, None] + np.arange(access.size, dtype="u8")).reshape(-1)
        span = np.searchsorted(self._starts, at, "right") - 1
        place = (at - self._starts[span]).astype("i8") + self._first[span]
        lane = np.repeat(access.lanes, access.size)
        cta = (group.numbers[lane] + 1).astype("i4")
        now = self._now(group)[lane]
        wrote, read = self._writer[place], self._reader[place]
        beside_write = (wrote != 0) & (wrote != cta) & (self._written[place] == now)
        several = (read != 0) & (read != cta) & (self._read[place] == now)
        if not access.writes:
            _expect(group, access, lane, ~beside_write, _READ.format("CTA"))
            _note(self._reader, place, np.where(several, _SEVERAL, cta))
            self._read[place] = now
            return
        assert written is not None  # only stores write to global memory
        same = self._memory.load(at, 1) == written.reshape(-1)
        _expect(group, access, lane, same | ~beside_write, _WRITE.format("CTA", "wrote"))
        _expect(group, access, lane, same | ~several, _WRITE.format("CTA", "read"))
        self._writer[place], self._value[place] = cta, written.reshape(-1)
        self._written[place] = now
        one = (self._writer[place] == cta) | (self._value[place] == written.reshape(-1))
        _expect(group, access, lane, one, "is written by several CTAs, with no order between them")


_READ = "is read after another {} wrote it, with no order between them"
_WRITE = "is written after another {} {} it, with no order between them"


def _note(readers: Array, place: Array, who: Array) -> None:
    """Remember who reads each byte; of several in one instruction, that they are several."""
    readers[place] = who
    readers[place[readers[place] != who]] = _SEVERAL


def _bytes(group: Group, access: Access) -> tuple[Array, Array]:
    """The places in shared memory of all bytes of an access, and the lane of each."""
    at = access.at.astype("i8") - SHARED_START
    inside = (at >= 0) & (at + access.size <= group.shared.nbytes)  # others are reported elsewhere
    lanes = access.lanes
    start = np.where(inside, group.shared.start[lanes] + at, group.shared.start[lanes])
    place = (start[:, None] + np.arange(access.size)).reshape(-1)
    return np.minimum(place, group.shared.bytes.size - 1), np.repeat(lanes, access.size)


def _expect(group: Group, access: Access, lane: Array, holds: Array, what: str) -> None:
    if holds.all():
        return
    wrong = np.unique(lane[~holds])
    at = access.at[np.searchsorted(access.lanes, wrong)]
    raise fault(group, access.instruction, wrong, at, what, Hazard)


def _expect_one_value(group: Group, access: Access, written: Array) -> None:
    """Raise Hazard if threads wrote different values to one byte: one of them is there now."""
    place, lane = _bytes(group, access)
    same = group.shared.bytes[place] == written.reshape(-1)
    what = "is written with several values by one instruction"
    _expect(group, access, lane, same, what)


def _sources(instruction: Instruction) -> list[Read]:
    """Functions that read the values that a store writes; none for other instructions."""
    if instruction.opcode != "st":
        return []
    source = instruction.operands[1]
    kind = f"u{BYTES[instruction.type]}"
    parts = source.parts if isinstance(source, Vector) else (source,)
    return [reader(part, kind) for part in parts]


def _orders_ctas(program: Program) -> bool:
    """Whether a kernel orders its CTAs by what it acquires or releases, not by doing both."""
    instructions = (instruction for block in program.blocks for instruction in block.instructions)
    atomics = (
        instruction
        for instruction in instructions
        if instruction.opcode in ("atom", "red", "ld", "st", "fence")
    )
    orders = {order for i in atomics for order in (*_ORDERING, "acq_rel") if i.has(order)}
    return bool(orders) and "acq_rel" not in orders
