"""Steps that load, store and copy: global, shared, local and parameter memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.ir.types import Array
from tools.ptx.checks import fault, require
from tools.ptx.errors import Hazard, MemoryFault, PtxSyntaxError, unsupported
from tools.ptx.group import GENERIC, LOCAL_START, SHARED_START, Group, Mask, Value
from tools.ptx.instructions import (
    BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
)
from tools.ptx.values import DTYPES, Read, Step, address_of, reader, writer

_SPACES = ("global", "shared", "shared::cta", "local", "const", "param")
_CACHE = (
    "weak", "volatile", "relaxed", "acquire", "release", "cta", "gpu", "sys", "ca", "cg", "cs",
    "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first",
    "L1::evict_last", "L1::no_allocate", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B",
    "L2::evict_last", "L2::evict_normal", "L2::evict_first",
)  # fmt: skip


def named_space(instruction: Instruction) -> str:
    """The state space; "" for generic addresses."""
    space = next((modifier for modifier in instruction.modifiers if modifier in _SPACES), "")
    return space.partition("::")[0]


def space_of(instruction: Instruction) -> str:
    """The state space; global for generic addresses, which are checked as such."""
    return named_space(instruction) or "global"


def _by_space(run: Callable[[Group, Mask, Read, str], None], where: Read) -> Step:
    """An access of generic addresses: lane by lane, of the space in whose window each lies."""

    def step(group: Group, mask: Mask) -> None:
        at = where(group)
        runs = np.ones(group.lanes, bool) if mask is None else mask
        for space, start in (*GENERIC.items(), ("global", 0)):
            inside = runs & (at >= np.uint64(start))
            if inside.any():
                here = None if inside.all() else inside
                run(group, here, lambda _, start=start: at - np.uint64(start), space)
                runs = runs & ~inside

    return step


def address(operand: Operand | None, kind: str) -> Read:
    """A function that reads an address with its offset added."""
    if not isinstance(operand, Address):
        raise PtxSyntaxError(f"{operand} is not an address")
    if isinstance(operand.base, Register):
        kind = f"u{operand.base.width}"  # local and shared addresses may have 32 bits or 64
    offset = np.dtype(kind).type(operand.offset % (1 << 8 * np.dtype(kind).itemsize))
    base = operand.base
    if isinstance(base, Symbol):
        return lambda group: np.dtype(kind).type(address_of(group, base.name)) + offset
    read = reader(base, kind)
    return lambda group: read(group) + offset


def _shape(instruction: Instruction) -> tuple[int, int]:
    """Bytes of an element, and the number of elements. Refuses modifiers that are unknown."""
    count = 1
    for modifier in instruction.modifiers[:-1]:
        if modifier in ("v2", "v4", "v8"):
            count = int(modifier[1])
        elif modifier not in _CACHE and modifier not in _SPACES:
            raise unsupported(instruction, f"the modifier {modifier}")
    if instruction.type not in BYTES:
        raise unsupported(instruction)
    return BYTES[instruction.type], count


def load(instruction: Instruction) -> Step:
    """ld, from every space."""
    width, count = _shape(instruction)
    space = space_of(instruction)
    to = instruction.operands[0]
    writes = [writer(part) for part in (to.parts if isinstance(to, Vector) else (to,))]
    if len(writes) != count:
        raise unsupported(instruction, f"{len(writes)} destinations")
    if space == "param":
        return _load_parameter(instruction, writes, width)
    where = address(instruction.operands[1], "u4" if space == "shared" else "u8")
    kind = DTYPES[instruction.type]
    kind = kind if kind[0] == "i" else f"u{width}"

    def run(group: Group, mask: Mask, where: Read = where, space: str = space) -> None:
        lanes, at = lanes_of(group, where(group), mask)
        view, index = located(group, instruction, space, lanes, at, width, count, False)
        for place, write in enumerate(writes):
            write(group, mask, _scattered(group, view[index + place], lanes, mask).view(kind))

    return run if named_space(instruction) else _by_space(run, where)


def _scattered(group: Group, values: Array, lanes: Array, mask: Mask) -> Array:
    if mask is None:
        return values
    whole = np.zeros(group.lanes, values.dtype)
    whole[lanes] = values
    return whole


def _load_parameter(instruction: Instruction, writes: Sequence[object], width: int) -> Step:
    source = instruction.operands[1]
    if not isinstance(source, Address) or not isinstance(source.base, Symbol):
        raise unsupported(instruction, "its address")
    name, offset, kind = source.base.name, source.offset, DTYPES[instruction.type]
    to = instruction.operands[0]
    each_write = [writer(part) for part in (to.parts if isinstance(to, Vector) else (to,))]

    def run(group: Group, mask: Mask) -> None:
        data = group.parameters.get(name)
        if data is None or not 0 <= offset <= len(data) - width * len(each_write):
            raise MemoryFault(
                f"{instruction.text}: no such bytes of a parameter", source=instruction.place
            )
        for place, write in enumerate(each_write):
            start = offset + place * width
            write(group, mask, np.frombuffer(data[start : start + width], kind)[0])

    return run


def store(instruction: Instruction) -> Step:
    """st, to global, shared and local memory."""
    width, count = _shape(instruction)
    space = space_of(instruction)
    if space in ("param", "const"):
        raise unsupported(instruction)
    where = address(instruction.operands[0], "u4" if space == "shared" else "u8")
    source = instruction.operands[1]
    reads = [
        reader(e, f"u{width}") for e in (source.parts if isinstance(source, Vector) else (source,))
    ]
    if len(reads) != count:
        raise unsupported(instruction, f"{len(reads)} sources")

    def run(group: Group, mask: Mask, where: Read = where, space: str = space) -> None:
        lanes, at = lanes_of(group, where(group), mask)
        view, index = located(group, instruction, space, lanes, at, width, count, True)
        for place, read in enumerate(reads):
            view[index + place] = chosen(group, read(group), lanes)

    return run if named_space(instruction) else _by_space(run, where)


def chosen(group: Group, value: Value, lanes: Array) -> Array:
    """The values of some lanes."""
    return group.spread(value)[lanes]


def lanes_of(group: Group, at: Value, mask: Mask) -> tuple[Array, Array]:
    """The lanes that access memory, and their addresses."""
    lanes = np.arange(group.lanes) if mask is None else np.flatnonzero(mask)
    return lanes, chosen(group, at, lanes)


def located(
    group: Group,
    instruction: Instruction,
    space: str,
    lanes: Array,
    at: Array,
    width: int,
    count: int,
    writes: bool,
) -> tuple[Array, Array]:
    """The memory as unsigned integers, and the index of each lane's first one, all checked."""
    size = width * count
    require(
        group, instruction, lanes, at, at % at.dtype.type(size) == 0, f"is not a multiple of {size}"
    )
    if space in ("global", "const"):
        outside = group.memory.outside(at, size, writes)
        if outside.any():
            near = group.memory.name_near(int(at[outside][0]))
            raise fault(group, instruction, lanes[outside], at[outside], f"is {near}")
        return group.memory.cells(at, f"u{width}")
    block, start = (group.shared, SHARED_START) if space == "shared" else (group.local, LOCAL_START)
    place = at.astype("i8") - start
    inside = (place >= 0) & (place + size <= block.nbytes)
    require(
        group,
        instruction,
        lanes,
        at,
        inside,
        f"is outside of {block.nbytes} bytes of {space} memory",
    )
    first = place + block.start[lanes]
    if space == "shared" and not writes:
        _expect_landed(group, instruction, lanes, at, first, size)
    return block.view(width), first // width


def _expect_landed(
    group: Group, instruction: Instruction, lanes: Array, at: Array, first: Array, size: int
) -> None:
    """Raise Hazard for a read of bytes that an asynchronous copy has not been waited for."""
    if not (group.copies.pending or group.copies.groups):
        return
    early = group.shared.in_flight[first] | group.shared.in_flight[first + size - 1]
    if early.any():
        text = "is read before the copy to it was waited for"
        raise fault(group, instruction, lanes[early], at[early], text, Hazard)


def copy_async(instruction: Instruction) -> Step:
    """cp.async to shared memory, its commit and its waits."""
    modifiers = instruction.modifiers
    if modifiers == ("async", "commit_group"):
        return lambda group, mask: group.copies.commit()
    if modifiers == ("async", "wait_all"):
        return _wait_all
    if modifiers == ("async", "wait_group"):
        most = instruction.operands[0]
        if isinstance(most, Immediate):
            return lambda group, mask: group.copies.wait(group.shared, most.value)
    allowed = {"async", "ca", "cg", "shared", "shared::cta", "global", *_CACHE}
    if modifiers[:1] != ("async",) or not {*modifiers} <= allowed or "bulk" in modifiers:
        raise unsupported(instruction)
    return _copy(instruction)


def _wait_all(group: Group, mask: Mask) -> None:
    group.copies.commit()
    group.copies.wait(group.shared, 0)


def _copy(instruction: Instruction) -> Step:
    to, source, size, *rest = instruction.operands
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16) or len(rest) > 1:
        raise unsupported(instruction, "its operands")
    whole = size.value
    read_to, read_from = address(to, "u4"), address(source, "u8")
    read_size = reader(rest[0] if rest else size, "u4")

    def run(group: Group, mask: Mask) -> None:
        lanes, at = lanes_of(group, read_to(group), mask)
        _, index = located(group, instruction, "shared", lanes, at, 1, whole, True)
        require(
            group,
            instruction,
            lanes,
            at,
            at % np.uint32(whole) == 0,
            f"is not a multiple of {whole}",
        )
        taken = chosen(group, read_size(group), lanes).astype("i8")
        data = _source(
            group, instruction, lanes, chosen(group, read_from(group), lanes), taken, whole
        )
        group.copies.pending.append((index, data))
        group.shared.bytes[index[:, None] + np.arange(whole)] = 0xFF
        group.shared.in_flight[index[:, None] + np.arange(whole)] = True

    return run


def _source(
    group: Group, instruction: Instruction, lanes: Array, at: Array, taken: Array, whole: int
) -> Array:
    """The bytes that are copied: `taken` of them are read, the others are zero."""
    require(group, instruction, lanes, at, (taken <= whole), f"copies more than {whole} bytes")
    data = np.zeros((len(lanes), whole), "u1")
    for size in np.unique(taken[taken > 0]):
        rows = np.flatnonzero(taken == size)
        start = at[rows]
        require(
            group,
            instruction,
            lanes[rows],
            start,
            start % np.uint64(whole) == 0,
            f"is not a multiple of {whole}",
        )
        view, index = located(group, instruction, "global", lanes[rows], start, 1, 1, False)
        located(group, instruction, "global", lanes[rows], start + np.uint64(size - 1), 1, 1, False)
        data[rows[:, None], np.arange(size)] = view[index[:, None] + np.arange(size)]
    return data
