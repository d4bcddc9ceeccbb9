"""Observes launches: wraps the steps of a translated kernel, so that others run as before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.support.cached_property import cached_property
from tools.ptx.counters.banks import BankCounter
from tools.ptx.counters.mix import class_of
from tools.ptx.counters.observers import Access, Observer, observer
from tools.ptx.counters.results import KernelCounters, Line
from tools.ptx.counters.sectors import Cache, Footprint, count_access
from tools.ptx.flow import Block
from tools.ptx.group import WARP, Group, Mask
from tools.ptx.instructions import Instruction
from tools.ptx.machine import Program
from tools.ptx.memory import Memory
from tools.ptx.values import Step, guarded


@dataclass
class _Launch:
    """State of the launch that runs: its footprints, and the caches of the group that runs."""

    into: KernelCounters
    memory: Memory
    executed: Counter[int] = field(default_factory=Counter[int])
    lanes: Counter[int] = field(default_factory=Counter[int])
    group: Group | None = None
    cache: Cache = field(default_factory=lambda: Cache(0))

    @cached_property
    def read(self) -> Footprint:
        """What was read; made at the first access, when a module's variables have memory."""
        return Footprint(*self.memory.spans())

    @cached_property
    def written(self) -> Footprint:
        """What was written."""
        return Footprint(*self.memory.spans())


class Counting:
    """Counters of every kernel that was launched, by its name, in the order of first launches.

    `kernels` are all; `order` the names of the launches.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, KernelCounters] = {}
        self.order: list[str] = []
        self._programs: dict[int, tuple[Program, Program]] = {}
        self._banks = BankCounter()
        self._launch: _Launch | None = None

    @contextmanager
    def launch(self, program: Program, memory: Memory, name: str = "") -> Generator[Program]:
        """Yield a program that counts while it runs, under `name` or that of its kernel."""
        name = name or program.kernel.name
        into = self.kernels.setdefault(name, KernelCounters(name))
        self._launch = _Launch(into, memory)
        yield self._counted(program)
        self.order.append(name)
        self._finish(program, self._launch)
        self._launch = None

    def _counted(self, program: Program) -> Program:
        entry = self._programs.get(id(program))
        if entry is None:
            pairs = enumerate(zip(program.blocks, program.steps, strict=True))
            steps = tuple(self._block(n, block, own) for n, (block, own) in pairs)
            entry = self._programs[id(program)] = (program, replace(program, steps=steps))
        return entry[1]

    def _block(self, number: int, block: Block, steps: Sequence[Step]) -> tuple[Step, ...]:
        rewritten: list[Step] = [self._execution(number)]
        for instruction, step in zip(block.instructions, steps, strict=True):
            seen = observer(instruction)
            if seen is not None:
                rewritten.append(guarded(self._observed(seen), instruction))
            rewritten.append(step)
        return tuple(rewritten)

    def _execution(self, number: int) -> Step:
        """Count the warps and lanes that come to a block."""

        def run(group: Group, mask: Mask) -> None:
            now = self._now()
            warps = group.lanes // WARP if mask is None else group.warps(mask).any(1).sum()
            now.executed[number] += int(warps)
            now.lanes[number] += group.lanes if mask is None else int(np.count_nonzero(mask))

        return run

    def _observed(self, seen: Observer) -> Step:
        return lambda group, mask: seen(group, mask, self._access)

    def _access(self, group: Group, access: Access) -> None:
        if not len(access.lanes):
            return
        now = self._now()
        line = now.into.lines.setdefault(access.instruction.place, Line())
        if access.space == "shared":
            counted = [now.into.banks, line.banks]
            self._banks.count(group, access.lanes, access.at, access.size, counted)
        else:
            self._global(now, group, access, line)

    def _global(self, now: _Launch, group: Group, access: Access, line: Line) -> None:
        if now.memory.outside(access.at, access.size, access.writes).any():
            return  # the instruction raises the error
        if now.group is not group:
            now.group, now.cache = group, Cache(group.ctas)
        into, cache, marks = now.into.loads, now.cache, now.read
        if access.writes:
            into, cache, marks = now.into.stores, None, now.written
        count_access(group, cache, access.lanes, access.at, access.size, [into, line.traffic])
        marks.mark(access.at, access.size)

    def _now(self) -> _Launch:
        assert self._launch is not None
        return self._launch

    def _finish(self, program: Program, now: _Launch) -> None:
        into = now.into
        into.launches += 1
        for traffic, marks in ((into.loads, now.read), (into.stores, now.written)):
            traffic.touched += marks.sectors
            traffic.ideal += marks.nbytes
        for number, block in enumerate(program.blocks):
            count = len(block.instructions) + (block.end is not None)
            into.slots += now.executed[number] * WARP * count
            into.lanes += now.lanes[number] * count
            for instruction in _instructions(block):
                into.instructions[class_of(instruction)] += now.executed[number]


def _instructions(block: Block) -> list[Instruction]:
    return [*block.instructions, *([block.end] if block.end is not None else [])]
