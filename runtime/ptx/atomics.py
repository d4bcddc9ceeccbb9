"""Steps of atom and red: one lane after the other where they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler.ir.types import Array
from runtime.ptx.access import address, chosen, lanes_of, located, space_of
from runtime.ptx.errors import unsupported
from runtime.ptx.float_steps import half_bits, half_value
from runtime.ptx.group import Group, Mask, Value, choose
from runtime.ptx.instructions import BYTES, Instruction
from runtime.ptx.values import DTYPES, Step, reader, writer

Update = Callable[[Value, Value, Value], Value]


def lesser(a: Value, b: Value) -> Value:
    """The smaller of two integers."""
    return np.minimum(a, b)


def greater(a: Value, b: Value) -> Value:
    """The larger of two integers."""
    return np.maximum(a, b)


_UPDATES: Mapping[str, Update] = {
    "add": lambda old, b, c: old + b,
    "min": lambda old, b, c: lesser(old, b),
    "max": lambda old, b, c: greater(old, b),
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: choose(old == b, c, old),
    "inc": lambda old, b, c: choose(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b, c: choose((old == 0) | (old > b), b, old - old.dtype.type(1)),
}
_KNOWN = {
    "global", "shared", "shared::cta", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu",
    "sys", "noftz", "L2::cache_hint",
}  # fmt: skip


def atomic(instruction: Instruction) -> Step:
    """atom, which returns what was there, and red, which does not."""
    name = next((each for each in instruction.modifiers[:-1] if each in _UPDATES), "")
    unknown = {*instruction.modifiers[:-1]} - _KNOWN - {name}
    if not name or unknown or instruction.type not in BYTES:
        raise unsupported(instruction, " ".join(sorted(unknown)))
    kind = DTYPES[instruction.type]
    operands = list(instruction.operands)
    write = writer(operands.pop(0)) if instruction.opcode == "atom" else writer(None)
    space = space_of(instruction)
    where = address(operands[0], "u4" if space == "shared" else "u8")
    reads = [reader(each, kind) for each in operands[1 : 3 if name == "cas" else 2]]
    update = _update(instruction, name)

    def run(group: Group, mask: Mask) -> None:
        lanes, at = lanes_of(group, where(group), mask)
        size = np.dtype(kind).itemsize
        view, index = located(group, instruction, space, lanes, at, size, 1, True)
        given = [chosen(group, read(group), lanes) for read in reads]
        old = np.zeros(group.lanes, kind)
        old[lanes] = _apply(view.view(kind), index, update, given[0], given[-1])
        write(group, mask, old)

    return run


def _update(instruction: Instruction, name: str) -> Update:
    """What replaces the old value; halves are added as float32 and rounded once."""
    plain = _UPDATES[name]
    if instruction.type == "f16":
        return lambda old, b, c: plain(old.astype("f4"), b.astype("f4"), c).astype("f2")
    if instruction.type == "bf16":
        return lambda old, b, c: half_bits(
            plain(half_value(old, True), half_value(b, True), c), True
        )
    if instruction.type.endswith("x2") or (
        instruction.type[0] == "f" and name not in ("add", "exch")
    ):
        raise unsupported(instruction)
    return plain


def _apply(cells: Array, index: Array, update: Update, b: Array, c: Array) -> Array:
    """Update cells, in rounds in which each is met once at most; returns the old values."""
    old = np.empty(len(index), cells.dtype)
    for rows in _rounds(index):
        at = index[rows]
        old[rows] = cells[at]
        cells[at] = update(old[rows], b[rows], c[rows])
    return old


def _rounds(index: Array) -> list[Array]:
    """Positions by how often their cell came before, in order."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    fresh = np.r_[True, ordered[1:] != ordered[:-1]]
    starts = np.flatnonzero(fresh)
    rank = np.arange(len(index)) - np.repeat(starts, np.diff(np.r_[starts, len(index)]))
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.flatnonzero(np.diff(rank[by_rank])) + 1
    return [order[each] for each in np.split(by_rank, bounds)]
