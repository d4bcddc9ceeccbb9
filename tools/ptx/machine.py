"""The machine: blocks of a kernel executed over groups of CTAs.

Lanes that part at a branch run one side after the other, and wait for each other at the block that
both sides pass. A barrier holds the lanes of a CTA until all its threads have come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import where
from tools.ptx.errors import BarrierFault, PtxError, unsupported
from tools.ptx.flow import Block, blocks_of, post_dominators
from tools.ptx.group import Group, Mask
from tools.ptx.instructions import Immediate, Instruction, Kernel
from tools.ptx.memory import Memory
from tools.ptx.order import Order
from tools.ptx.steps import step_of
from tools.ptx.values import Read, Step, both, reader

MOST_LANES = 8192
"""Lanes of a group that run together: CTAs are taken up to these."""

MOST_BLOCKS = 50_000_000
"""Blocks that a group may execute: an endless loop ends with an error."""


@dataclass(frozen=True)
class Program:
    """A kernel ready to run: the steps of each block, and where lanes meet."""

    kernel: Kernel
    blocks: tuple[Block, ...]
    steps: tuple[tuple[Step, ...], ...]
    guards: tuple[Read | None, ...]
    meets: tuple[frozenset[int], ...]


def translate(kernel: Kernel) -> Program:
    """Prepare a kernel. Raises UnsupportedInstruction naming what cannot be executed."""
    blocks = blocks_of(kernel)
    steps = tuple(
        tuple(step_of(instruction) for instruction in block.instructions) for block in blocks
    )
    guards = tuple(_guard(block.end) for block in blocks)
    return Program(kernel, blocks, steps, guards, post_dominators(blocks))


def _guard(end: Instruction | None) -> Read | None:
    if end is None:
        return None
    if end.opcode in ("bar", "barrier"):
        _expect_barrier(end)
    elif end.opcode == "bra" and not {*end.modifiers} <= {"uni"}:
        raise unsupported(end)
    return reader(end.guard, "?") if end.guard is not None else None


def _expect_barrier(end: Instruction) -> None:
    modifiers = tuple(modifier for modifier in end.modifiers if modifier not in ("cta", "aligned"))
    plain = (
        modifiers == ("sync",) and len(end.operands) == 1 and isinstance(end.operands[0], Immediate)
    )
    if not (plain or (modifiers == ("warp", "sync") and end.opcode == "bar")):
        raise unsupported(end)


def run(
    program: Program,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic: int,
    parameters: Mapping[str, bytes],
    memory: Memory,
    order: Order | None = None,
) -> None:
    """Execute a launch; without an `order` CTAs run by number, x fastest.

    `dynamic` are the bytes of shared memory beyond those of variables; `parameters` the bytes of
    each. Raises MemoryFault, BarrierFault or UnsupportedInstruction.
    """
    ctas = range(prod(grid)) if order is None else order.ctas(prod(grid))
    together = max(1, MOST_LANES // max(prod(block), 1))
    with np.errstate(all="ignore"):
        for start in range(0, len(ctas), together):
            chosen = ctas[start : start + together]
            group = Group(program.kernel, chosen, grid, block, dynamic, parameters, memory)
            _March(program, group, order).run()


class _March:
    """One group on its way through the blocks: `ready` lanes by block, and those at barriers."""

    def __init__(self, program: Program, group: Group, order: Order | None) -> None:
        self._program = program
        self._order = order
        self._group = group
        start = group.start()
        self._ready: dict[int, Mask] = {0: start}
        self._alive: Array = np.ones(group.lanes, bool) if start is None else start.copy()
        self._ended = np.zeros(group.lanes, bool)
        self._waiting: dict[int, Array] = {}

    def run(self) -> None:
        for _ in range(MOST_BLOCKS):
            if self._ready:
                self._execute(self._next())
            elif self._waiting:
                self._release()
            else:
                return
        raise PtxError(f"{self._program.kernel.name} does not end")

    def _next(self) -> int:
        """A block that no other lanes are still on their way to."""
        if len(self._ready) == 1:
            return next(iter(self._ready))
        meets = self._program.meets
        free = [
            warp
            for warp in self._ready
            if not any(warp in meets[o] for o in self._ready if o != warp)
        ]
        there = sorted(free or self._ready)
        return there[0] if self._order is None else self._order.side(there)

    def _execute(self, number: int) -> None:
        mask, group = self._ready.pop(number), self._group
        for step in self._program.steps[number]:
            step(group, mask)
        block = self._program.blocks[number]
        end, guard = block.end, self._program.guards[number]
        if end is None:
            self._go(block.successors[0], mask)
        elif guard is None:
            self._finish(number, end, mask)
        else:
            self._part(number, end, guard, mask)

    def _part(self, number: int, end: Instruction, guard: Read, mask: Mask) -> None:
        """Split the lanes by the guard of the instruction that ends the block."""
        holds = guard(self._group)
        taken, other = both(mask, holds, self._group), both(mask, ~holds, self._group)
        if taken is None or taken.any():
            self._finish(number, end, taken)
        if other is None or other.any():
            self._go(self._program.blocks[number].successors[-1], other)

    def _finish(self, number: int, end: Instruction, mask: Mask) -> None:
        block = self._program.blocks[number]
        if end.opcode == "bra":
            self._go(block.successors[0], mask)
        elif end.opcode == "trap":
            lane = 0 if mask is None else int(np.flatnonzero(mask)[0])
            raise PtxError(f"{where(self._group, end, lane, 0)}: trap", source=end.place)
        elif end.opcode in ("ret", "exit"):
            self._leave(mask)
        elif end.has("warp"):
            self._group.warp_syncs += self._group.warps(True if mask is None else mask).any(1)
            self._go(block.successors[-1], mask)
        else:
            lanes = self._alive.copy() if mask is None else mask
            self._waiting[number] = lanes | self._waiting.get(number, np.bool_(False))

    def _go(self, number: int, mask: Mask) -> None:
        if number not in self._ready:
            self._ready[number] = mask
            return
        there = self._ready[number]
        joined = None if mask is None or there is None else mask | there
        self._ready[number] = None if joined is None or joined.all() else joined

    def _leave(self, mask: Mask) -> None:
        gone = self._alive.copy() if mask is None else mask
        self._ended |= gone
        self._alive &= ~gone

    def _release(self) -> None:
        """Let the CTAs continue whose threads have all come to one barrier."""
        group = self._group
        for number, mask in self._waiting.items():
            present = mask.reshape(group.ctas, -1).any(1)
            complete = (mask == self._threads()).reshape(group.ctas, -1).all(1)
            if (present & ~complete).any():
                self._refuse(number, mask, present & ~complete)
        waiting, self._waiting = self._waiting, {}
        for number, mask in waiting.items():
            group.barriers += mask.reshape(group.ctas, -1).any(1)
            self._go(self._program.blocks[number].successors[-1], None if mask.all() else mask)

    def _threads(self) -> Array:
        return self._alive | self._ended

    def _refuse(self, number: int, mask: Array, partial: Array) -> None:
        group, end = self._group, self._program.blocks[number].end
        assert end is not None
        lanes = group.cta == int(partial.argmax())
        count, whole = int((mask & lanes).sum()), int((self._threads() & lanes).sum())
        place = where(group, end, int(np.flatnonzero(lanes)[0]), 0)
        text = f"{place}: {count} of {whole} threads of the CTA come to the barrier"
        raise BarrierFault(text, op=end.text, source=end.place)
