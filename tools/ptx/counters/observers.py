"""Reads the addresses that an instruction accesses, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from tools.ptx.access import address, chosen, lanes_of, space_of
from tools.ptx.group import WARP, Group, Mask
from tools.ptx.instructions import BYTES, Immediate, Instruction, Operand
from tools.ptx.values import Read, reader


@dataclass(frozen=True)
class Access:
    """Bytes that lanes access: the space is global or shared; writes include atomics."""

    instruction: Instruction
    space: str
    writes: bool
    lanes: Array
    at: Array
    size: int


Sink = Callable[[Group, Access], None]
Observer = Callable[[Group, Mask, Sink], None]


def observer(instruction: Instruction) -> Observer | None:
    """A function that reports what an instruction accesses; None if it accesses no such memory."""
    if instruction.opcode in ("ld", "st", "atom", "red"):
        return _plain(instruction)
    if instruction.opcode in ("ldmatrix", "stmatrix"):
        return _matrix(instruction)
    if (
        instruction.opcode == "cp"
        and len(instruction.operands) >= 3
        and not instruction.has("bulk")
    ):
        return _copy(instruction)
    return None


def _plain(instruction: Instruction) -> Observer | None:
    space = space_of(instruction)
    if space not in ("global", "shared"):
        return None
    loads, operands = instruction.opcode == "ld", instruction.operands
    where = _address(operands[1 if instruction.opcode in ("ld", "atom") else 0], space)
    count = next((int(m[1]) for m in instruction.modifiers if m in ("v2", "v4", "v8")), 1)
    size = BYTES[instruction.type] * count

    def observe(group: Group, mask: Mask, sink: Sink) -> None:
        lanes, at = lanes_of(group, where(group), mask)
        sink(group, Access(instruction, space, not loads, lanes, at, size))

    return observe


def _matrix(instruction: Instruction) -> Observer:
    """Ldmatrix and stmatrix: rows of 16 bytes, whose addresses the first lanes hold."""
    loads = instruction.opcode == "ldmatrix"
    where = _address(instruction.operands[1 if loads else 0], "shared")
    rows = 8 * next(int(m[1]) for m in instruction.modifiers if m in ("x1", "x2", "x4"))

    def observe(group: Group, mask: Mask, sink: Sink) -> None:
        wanted = group.thread % WARP < rows
        lanes, at = lanes_of(group, where(group), wanted if mask is None else wanted & mask)
        sink(group, Access(instruction, "shared", not loads, lanes, at, 16))

    return observe


def _copy(instruction: Instruction) -> Observer | None:
    """cp.async: a store to shared memory, and a load from global memory if it copies anything."""
    to, source, size, *rest = instruction.operands
    if not isinstance(size, Immediate):
        return None
    store, load = _address(to, "shared"), _address(source, "global")
    taken = reader(rest[0] if rest else size, "u4")
    whole = size.value

    def observe(group: Group, mask: Mask, sink: Sink) -> None:
        lanes, at = lanes_of(group, store(group), mask)
        sink(group, Access(instruction, "shared", True, lanes, at, whole))
        copied = chosen(group, taken(group), lanes) == np.uint32(whole)
        selected = lanes[copied]
        sink(
            group,
            Access(
                instruction, "global", False, selected, chosen(group, load(group), selected), whole
            ),
        )

    return observe


def _address(operand: Operand | None, space: str) -> Read:
    return address(operand, "u4" if space == "shared" else "u8")
