"""Steps of atom and red: one lane after the other where they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.ir.types import Array
from tools.ptx.access import address, chosen, lanes_of, located, space_of
from tools.ptx.arithmetic import BITS, joined
from tools.ptx.errors import unsupported
from tools.ptx.float_steps import HALVES, half_bits, half_value
from tools.ptx.group import Group, Mask, Value, choose
from tools.ptx.instructions import BYTES, Instruction, Operand, Vector
from tools.ptx.values import DTYPES, Binary, Step, reader, writer

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
    name, count = _expect(instruction)
    kind = DTYPES[instruction.type]
    operands = list(instruction.operands)
    to = operands.pop(0) if instruction.opcode == "atom" else None
    space = space_of(instruction)
    where = address(operands[0], "u4" if space == "shared" else "u8")
    writes = [writer(part) for part in _parts(to, count)]
    sources = [_parts(operand, count) for operand in operands[1 : 3 if name == "cas" else 2]]
    if len(writes) != count or any(len(parts_of_operand) != count for parts_of_operand in sources):
        raise unsupported(instruction, "its operands")
    reads = [
        [reader(parts_of_operand[place], kind) for parts_of_operand in sources]
        for place in range(count)
    ]
    update = _update(instruction, name)

    def run(group: Group, mask: Mask) -> None:
        lanes, at = lanes_of(group, where(group), mask)
        size = np.dtype(kind).itemsize
        view, index = located(group, instruction, space, lanes, at, size, count, True)
        values = [[chosen(group, read(group), lanes) for read in readers] for readers in reads]
        for place, (write, taken) in enumerate(zip(writes, values, strict=True)):
            old = np.zeros(group.lanes, kind)
            old[lanes] = _apply(view.view(kind), index + place, update, taken[0], taken[-1])
            write(group, mask, old)

    return run


def _expect(instruction: Instruction) -> tuple[str, int]:
    """The operation, and the number of elements; UnsupportedInstruction for what is unknown."""
    name = next((modifier for modifier in instruction.modifiers[:-1] if modifier in _UPDATES), "")
    vector = next(
        (modifier for modifier in instruction.modifiers if modifier in ("v2", "v4", "v8")), "v1"
    )
    unknown = {*instruction.modifiers[:-1]} - _KNOWN - {name, vector}
    if not name or unknown or instruction.type not in BYTES:
        raise unsupported(instruction, " ".join(sorted(unknown)))
    count = int(vector[1])
    most = 16 // BYTES[instruction.type] if instruction.type in ("f32", *HALVES) else 1
    if count > 1 and (name != "add" or count > most or space_of(instruction) != "global"):
        raise unsupported(instruction, vector)
    return name, count


def _parts(operand: Operand | None, count: int) -> Sequence[Operand | None]:
    """The elements of a vector; of what takes nothing as many as wanted."""
    if isinstance(operand, Vector):
        return operand.parts
    return (operand,) * (1 if operand is not None else count)


def _update(instruction: Instruction, name: str) -> Update:
    """What replaces the old value; halves are added as float32 and rounded once."""
    plain = _UPDATES[name]
    if instruction.type[0] not in "fb" or instruction.type in BITS:
        return plain
    if name not in ("add", "exch") or (name == "exch" and instruction.type in HALVES):
        raise unsupported(instruction)
    if instruction.type not in HALVES:
        return plain
    one = _add_halves(instruction.type[0] == "b")
    if not instruction.type.endswith("x2"):
        return lambda old, b, c: one(old.view("u2"), b.view("u2")).view(old.dtype)

    def both(old: Value, b: Value, c: Value) -> Value:
        low, up = (
            one(*((operand >> np.uint32(side)).astype("u2") for operand in (old, b)))
            for side in (0, 16)
        )
        return joined(low, up)

    return both


def _add_halves(brain: bool) -> Binary:
    return lambda a, b: half_bits(half_value(a, brain) + half_value(b, brain), brain)


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
    return [order[group] for group in np.split(by_rank, bounds)]
