"""Proves that one changed load or store cannot matter.

The instruction is executed as it is and as changed, from one state. What differs afterwards, in
registers and in shared memory, is replaced by random bits. If the results of the launch are then
still the same, no value that the change can produce reaches them. Lanes that take part only after
the change count as different whatever they load, and global memory has to be the same at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tools.ptx.counters.observers import Access, observer
from tools.ptx.group import Group, Mask
from tools.ptx.instructions import Address, Instruction, Kernel, Register, Vector
from tools.ptx.machine import Program
from tools.ptx.memory import Memory
from tools.ptx.steps import step_of
from tools.ptx.values import Step, both, guarded, reader

Change = Callable[[Instruction], Instruction]


class Matters(Exception):
    """The change reaches global memory."""


@dataclass(frozen=True)
class _State:
    """Registers, shared memory, and the bytes of global memory that are accessed."""

    registers: list[Any]
    shared: Any
    memory: Any


class Differences:
    """Runs a kernel with random bits for what a change of one instruction makes different.

    To be used as the `hazards` of a `Library`; `line` is that of the PTX.
    """

    def __init__(self, kernel: Kernel, line: int, change: Change, seed: int) -> None:
        self._kernel, self._line, self._change = kernel, line, change
        self._random = np.random.default_rng(seed)

    @contextmanager
    def launch(self, program: Program, memory: Memory) -> Generator[Program]:
        """Yield a program whose instruction is watched."""
        if program.kernel != self._kernel:
            yield program
            return
        steps = tuple(
            tuple(
                self._watched(instruction) if instruction.line == self._line else step
                for instruction, step in zip(block.instructions, own, strict=True)
            )
            for block, own in zip(program.blocks, program.steps, strict=True)
        )
        yield replace(program, steps=steps)

    def _watched(self, before: Instruction) -> Step:
        now = self._change(before)
        pair = step_of(before), step_of(now)
        addresses = [_addresses(instruction) for instruction in (before, now)]
        written = _registers(before)

        def run(group: Group, mask: Mask) -> None:
            at = np.unique(
                np.concatenate([addresses_of(group, mask) for addresses_of in addresses])
            )
            start = _state(group, at)
            pair[0](group, mask)
            expected = _state(group, at)
            _restore(group, start, at)
            pair[1](group, mask)
            actual = _state(group, at)
            if (actual.memory != expected.memory).any():
                raise Matters(now.text)
            more = _lanes(group, now, mask) & ~_lanes(group, before, mask)
            self._scramble(group, expected, actual, written, more)

        return run

    def _scramble(
        self, group: Group, expected: _State, found: _State, written: Sequence[int], more: Any
    ) -> None:
        for slot in written:
            old, new = (group.spread(state.registers[slot]) for state in (expected, found))
            bits = self._random.integers(0, 1 << 8 * new.itemsize, new.shape, "u8", endpoint=False)
            changed = (old != new) | more
            group.registers[slot] = np.where(changed, bits.astype(new.dtype), new)
        places = np.flatnonzero(expected.shared != found.shared)
        group.shared.bytes[places] = self._random.integers(0, 256, len(places), "u1")


def without_mask(instruction: Instruction) -> Instruction:
    """The instruction for all threads."""
    return replace(instruction, guard=None)


def shifted(instruction: Instruction, by: int) -> Instruction:
    """The instruction with an offset that is larger by some bytes."""
    moved = [
        replace(operand, offset=operand.offset + by) if isinstance(operand, Address) else operand
        for operand in instruction.operands
    ]
    return replace(instruction, operands=tuple(moved))


def _registers(instruction: Instruction) -> list[int]:
    """The registers that a load writes."""
    if instruction.opcode != "ld":
        return []
    to = instruction.operands[0]
    parts = to.parts if isinstance(to, Vector) else (to,)
    return [part.slot for part in parts if isinstance(part, Register)]


def _addresses(instruction: Instruction) -> Callable[[Group, Mask], Any]:
    """The addresses of the bytes of global memory that an instruction stores to."""
    seen = observer(instruction)
    if seen is None:
        return lambda group, mask: np.zeros(0, "u8")
    watch = guarded(lambda group, mask: seen(group, mask, note), instruction)
    addresses: list[Any] = []

    def note(group: Group, access: Access) -> None:
        if access.space == "global" and access.writes:
            addresses.append((access.at[:, None] + np.arange(access.size, dtype="u8")).reshape(-1))

    def read(group: Group, mask: Mask) -> Any:
        addresses.clear()
        watch(group, mask)
        return np.concatenate(addresses) if addresses else np.zeros(0, "u8")

    return read


def _lanes(group: Group, instruction: Instruction, mask: Mask) -> Any:
    """The lanes that execute an instruction."""
    if instruction.guard is not None:
        mask = both(mask, reader(instruction.guard, "?")(group), group)
    return np.ones(group.lanes, bool) if mask is None else mask


def _state(group: Group, at: Any) -> _State:
    if group.memory.outside(at, 1, True).any():
        raise Matters("out of bounds")
    stored = group.memory.load(at, 1).copy() if len(at) else at
    return _State([*group.registers], group.shared.bytes.copy(), stored)


def _restore(group: Group, state: _State, at: Any) -> None:
    group.registers[:] = state.registers
    group.shared.bytes[:] = state.shared
    if len(at):
        group.memory.store(at, 1, state.memory)
