"""Steps of whole warps: shuffles, votes, reductions, and matrices between lanes and memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.types import Array
from tools.ptx.access import address, lanes_of, located
from tools.ptx.checks import require_whole_warps, where
from tools.ptx.errors import BarrierFault, unsupported
from tools.ptx.group import WARP, Group, Mask, Value, choose
from tools.ptx.instructions import Instruction, Operand, Pair, Vector
from tools.ptx.values import DTYPES, Read, Step, reader, writer

_LANE = np.arange(WARP)


def shuffle(instruction: Instruction) -> Step:
    """shfl.sync in its four modes, with segments and clamps."""
    if (
        instruction.modifiers[0] != "sync"
        or instruction.type != "b32"
        or len(instruction.modifiers) != 3
    ):
        raise unsupported(instruction)
    mode = instruction.modifiers[1]
    if mode not in ("bfly", "up", "down", "idx"):
        raise unsupported(instruction)
    to, *sources = instruction.operands
    first, second = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    reads = [reader(source, "u4") for source in sources]
    write, write_valid = writer(first), writer(second)

    def run(group: Group, mask: Mask) -> None:
        value, offset, limits, members = (read(group) for read in reads)
        expect_members(group, instruction, members, mask)
        pick, valid = _source_lane(mode, group.warps(offset), group.warps(limits))
        shuffled = np.take_along_axis(group.warps(value), pick, 1).reshape(-1)
        write(group, mask, shuffled)
        write_valid(group, mask, valid.reshape(-1))

    return run


def _source_lane(mode: str, offset: Array, limits: Array) -> tuple[Array, Array]:
    """The lane that each reads, and whether it is in range (else each reads its own)."""
    offset = (offset & np.uint32(31)).astype("i8")
    clamp, segment = (limits & 31).astype("i8"), (limits >> 8 & 31).astype("i8")
    top = (_LANE & segment) | (clamp & ~segment)
    low = _LANE & segment
    pick = {
        "up": _LANE - offset,
        "down": _LANE + offset,
        "bfly": _LANE ^ offset,
        "idx": low | (offset & ~segment & 31),
    }[mode]
    valid = pick >= top if mode == "up" else pick <= top
    return choose(valid, pick, _LANE), valid


def expect_members(group: Group, instruction: Instruction, members: Value, mask: Mask) -> None:
    """Raise BarrierFault if a lane that the mask of members names does not take part."""
    runs = np.ones(group.lanes, bool) if mask is None else mask
    warps = group.warps(runs)
    named = (group.warps(members)[:, :, None] >> _LANE.astype("u4")) & 1 != 0
    missing = warps[:, :, None] & named & ~warps[:, None, :]
    itself = np.broadcast_to(np.eye(WARP, dtype=bool), named.shape)
    alone = warps[:, :, None] & itself & ~named
    if missing.any() or alone.any():
        lane = int(np.argwhere(missing | alone)[0] @ (WARP, 1, 0))
        text = f"{where(group, instruction, lane, 0)}: the lanes do not match the mask of members"
        raise BarrierFault(text, op=instruction.text, source=instruction.place)


def vote(instruction: Instruction) -> Step:
    """vote.sync: all, any, uni and ballot."""
    if instruction.modifiers[0] != "sync" or len(instruction.modifiers) != 3:
        raise unsupported(instruction)
    mode = instruction.modifiers[1]
    if mode not in ("all", "any", "uni", "ballot") or (mode == "ballot") != (
        instruction.type == "b32"
    ):
        raise unsupported(instruction)
    read, members = reader(instruction.operands[1], "?"), reader(instruction.operands[2], "u4")
    write = writer(instruction.operands[0])

    def run(group: Group, mask: Mask) -> None:
        expect_members(group, instruction, members(group), mask)
        runs = group.warps(True if mask is None else mask)
        write(group, mask, np.repeat(_voted(mode, group.warps(read(group)), runs), WARP))

    return run


def _voted(mode: str, holds: Array, runs: Array) -> Array:
    yes, no = np.asarray(holds & runs), np.asarray(~holds & runs)
    if mode == "ballot":
        return (yes.astype("u8") << _LANE.astype("u8")).sum(1).astype("u4")
    holds, fails = np.asarray(yes.any(1)), np.asarray(no.any(1))
    return {"all": ~fails, "any": holds, "uni": ~(holds & fails)}[mode]


_REDUCE: Mapping[str, tuple[np.ufunc, int]] = {
    "add": (np.add, 0),
    "and": (np.bitwise_and, -1),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


def reduce(instruction: Instruction) -> Step:
    """redux.sync of 32-bit integers."""
    name = instruction.modifiers[1] if len(instruction.modifiers) == 3 else ""
    if name not in (*_REDUCE, "min", "max") or instruction.type not in ("u32", "s32", "b32"):
        raise unsupported(instruction)
    kind = np.dtype(DTYPES[instruction.type])
    read, members = (
        reader(instruction.operands[1], kind.str[1:]),
        reader(instruction.operands[2], "u4"),
    )
    write = writer(instruction.operands[0])
    info = np.iinfo(kind)
    ufunc, start = {
        **_REDUCE,
        "min": (np.minimum, info.max),
        "max": (np.maximum, info.min),
    }[name]
    neutral = np.array(start % (1 << 32), "u4").view(kind)[()]

    def run(group: Group, mask: Mask) -> None:
        expect_members(group, instruction, members(group), mask)
        value = group.warps(read(group) if mask is None else choose(mask, read(group), neutral))
        write(group, mask, np.repeat(ufunc.reduce(value, axis=1, dtype=kind), WARP))

    return run


def active_mask(instruction: Instruction) -> Step:
    """activemask: the lanes that execute it."""
    write = writer(instruction.operands[0])

    def run(group: Group, mask: Mask) -> None:
        runs = group.warps(True if mask is None else mask)
        write(group, mask, np.repeat(_voted("ballot", runs, runs), WARP))

    return run


def matrix_memory(instruction: Instruction) -> Step:
    """Ldmatrix and stmatrix of 8 by 8 elements of 16 bits."""
    allowed = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if not {*instruction.modifiers} <= allowed or instruction.type != "b16":
        raise unsupported(instruction)
    loads = instruction.opcode == "ldmatrix"
    registers, at = instruction.operands if loads else reversed(instruction.operands)
    count = next(
        int(modifier[1]) for modifier in instruction.modifiers if modifier in ("x1", "x2", "x4")
    )
    parts = registers.parts if isinstance(registers, Vector) else (registers,)
    if len(parts) != count:
        raise unsupported(instruction, f"{len(parts)} registers")
    transfer = _load_matrix if loads else _store_matrix
    return transfer(instruction, parts, address(at, "u4"))


def _elements(rows: Array, trans: bool) -> tuple[Array, Array]:
    """The places of the two elements of each lane, from the starts of the rows: [warp, lane]."""
    if trans:
        return tuple(rows[:, 2 * (_LANE % 4) + j] + _LANE // 4 for j in (0, 1))  # type: ignore[return-value]
    return tuple(rows[:, _LANE // 4] + 2 * (_LANE % 4) + j for j in (0, 1))  # type: ignore[return-value]


def _load_matrix(instruction: Instruction, parts: tuple[Operand | None, ...], at: Read) -> Step:
    writes, trans = [writer(part) for part in parts], instruction.has("trans")

    def run(group: Group, mask: Mask) -> None:
        require_whole_warps(group, instruction, mask)
        view, rows = _rows_of(group, instruction, at(group), len(writes), mask, False)
        for write, row in zip(writes, rows, strict=True):
            low, high = (view[index].astype("u4") for index in _elements(row, trans))
            write(group, mask, _everywhere(group, low | high << np.uint32(16), mask))

    return run


def _store_matrix(instruction: Instruction, parts: tuple[Operand | None, ...], at: Read) -> Step:
    reads, trans = [reader(part, "u4") for part in parts], instruction.has("trans")

    def run(group: Group, mask: Mask) -> None:
        require_whole_warps(group, instruction, mask)
        view, rows = _rows_of(group, instruction, at(group), len(reads), mask, True)
        for read, row in zip(reads, rows, strict=True):
            value = _running(group, read(group), mask)
            low, high = _elements(row, trans)
            view[low], view[high] = value.astype("u2"), (value >> np.uint32(16)).astype("u2")

    return run


def _rows_of(
    group: Group, instruction: Instruction, at: Value, count: int, mask: Mask, writes: bool
) -> tuple[Array, Array]:
    wanted = group.thread % WARP < 8 * count
    lanes, places = lanes_of(group, at, wanted if mask is None else wanted & mask)
    view, index = located(group, instruction, "shared", lanes, places, 2, 8, writes)
    return view, index.reshape(-1, count, 8).transpose(1, 0, 2)


def _running(group: Group, value: Value, mask: Mask) -> Array:
    """The values of the warps that run."""
    warps = group.warps(value)
    return warps if mask is None else warps[group.warps(mask).any(1)]


def _everywhere(group: Group, values: Array, mask: Mask) -> Array:
    """Values of the warps that run, as those of all lanes."""
    if mask is None:
        return values.reshape(-1)
    whole = np.zeros((group.lanes // WARP, WARP), values.dtype)
    whole[group.warps(mask).any(1)] = values
    return whole.reshape(-1)
