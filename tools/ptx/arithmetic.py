"""Steps of integer instructions and of logic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tools.ptx import integers as ints
from tools.ptx.errors import unsupported
from tools.ptx.group import Group, Mask, Value, choose
from tools.ptx.instructions import Immediate, Instruction
from tools.ptx.values import DTYPES, Binary, Function, Step, called, reader, writer

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b16", "b32", "b64")


def expect(instruction: Instruction, types: tuple[str, ...], modifiers: tuple[str, ...]) -> str:
    """Return the type; UnsupportedInstruction if it, or any modifier, is not among those known."""
    if instruction.type not in types:
        raise unsupported(instruction, f"its type is {instruction.type or 'missing'}")
    for modifier in instruction.modifiers[:-1]:
        if modifier not in modifiers:
            raise unsupported(instruction, f"the modifier {modifier}")
    return DTYPES[instruction.type]


def compute(instruction: Instruction, function: Function, *kinds: str) -> Step:
    """A step that writes a function of the operands, read as these types."""
    if len(instruction.operands) != len(kinds) + 1:
        raise unsupported(instruction, f"{len(instruction.operands)} operands")
    write = writer(instruction.operands[0])
    reads = [reader(*pair) for pair in zip(instruction.operands[1:], kinds, strict=True)]
    call = called(function)
    if len(reads) == 1:
        (first,) = reads
        return lambda group, mask: write(group, mask, call(first(group)))
    if len(reads) == 2:
        first, second = reads
        return lambda group, mask: write(group, mask, call(first(group), second(group)))
    return lambda group, mask: write(group, mask, call(*[read(group) for read in reads]))


def integer(instruction: Instruction) -> Step:
    """add, sub, min, max, div, rem, abs, neg of integers."""
    name = instruction.opcode
    allowed = ("sat",) if name in ("add", "sub") else ()
    kind = expect(instruction, INTEGERS, allowed)
    if instruction.has("sat"):
        return compute(instruction, _SATURATED[name], kind, kind)
    function, count = _INTEGER[name]
    return compute(instruction, function, *(kind,) * count)


def _added(a: Value, b: Value) -> Value:
    return ints.saturated(a.astype("i8") + b.astype("i8"), "i4")


def _subtracted(a: Value, b: Value) -> Value:
    return ints.saturated(a.astype("i8") - b.astype("i8"), "i4")


_SATURATED = {"add": _added, "sub": _subtracted}
_INTEGER: Mapping[str, tuple[Function, int]] = {
    "add": (lambda a, b: a + b, 2),
    "sub": (lambda a, b: a - b, 2),
    "min": (lambda a, b: np.minimum(a, b), 2),
    "max": (lambda a, b: np.maximum(a, b), 2),
    "div": (ints.divide, 2),
    "rem": (ints.remainder, 2),
    "abs": (np.abs, 1),
    "neg": (lambda a: a.dtype.type(0) - a, 1),
}


def _low(a: Value, b: Value) -> Value:
    return a * b


_PRODUCTS: Mapping[str, Binary] = {"lo": _low, "hi": ints.high, "wide": ints.wide}


def product(instruction: Instruction) -> Step:
    """Mul and mad of integers, with .lo, .hi or .wide."""
    kind = expect(instruction, INTEGERS, ("lo", "hi", "wide"))
    part = instruction.modifiers[0]
    multiply = _PRODUCTS[part]
    if instruction.opcode == "mul":
        return compute(instruction, multiply, kind, kind)
    third = f"{kind[0]}{2 * int(kind[1])}" if part == "wide" else kind

    def run(a: Value, b: Value, c: Value) -> Value:
        return multiply(a, b) + c

    return compute(instruction, run, kind, kind, third)


def packed_sixteen(instruction: Instruction) -> Step:
    """add, min and max of two 16-bit integers in a register."""
    expect(instruction, ("u16x2", "s16x2"), ())
    kind = DTYPES[instruction.type[:3]]
    function = called(_INTEGER[instruction.opcode][0])

    def run(a: Value, b: Value) -> Value:
        low, up = (
            function(_half(a, side).view(kind), _half(b, side).view(kind)) for side in (0, 16)
        )
        return joined(low.view("u2"), up.view("u2"))

    return compute(instruction, run, "u4", "u4")


def _half(value: Value, side: int) -> Value:
    return (value >> np.uint32(side)).astype("u2")


def joined(low: Value, up: Value) -> Value:
    """Two values of 16 bits in one of 32."""
    return low.astype("u4") | (up.astype("u4") << np.uint32(16))


def logic(instruction: Instruction) -> Step:
    """and, or, xor, not, cnot of bits or predicates."""
    kind = expect(instruction, (*BITS, "pred"), ())
    function, count = _LOGIC[instruction.opcode]
    return compute(instruction, function, *(kind,) * count)


_LOGIC: Mapping[str, tuple[Function, int]] = {
    "and": (np.bitwise_and, 2),
    "or": (np.bitwise_or, 2),
    "xor": (np.bitwise_xor, 2),
    "not": (np.bitwise_not, 1),
    "cnot": (lambda a: (a == 0).astype(a.dtype), 1),
}


def shift(instruction: Instruction) -> Step:
    """Shl and shr."""
    allowed = BITS if instruction.opcode == "shl" else (*BITS, *INTEGERS)
    kind = expect(instruction, allowed, ())
    function = ints.shift_left if instruction.opcode == "shl" else ints.shift_right
    return compute(instruction, function, kind, "u4")


def funnel(instruction: Instruction) -> Step:
    """shf.l and shf.r with .wrap or .clamp."""
    expect(instruction, ("b32",), ("l", "r", "wrap", "clamp"))
    left, clamp = instruction.has("l"), instruction.has("clamp")
    return compute(instruction, lambda a, b, n: ints.funnel(a, b, n, left, clamp), *("u4",) * 3)


def field(instruction: Instruction) -> Step:
    """Bfe and bfi."""
    if instruction.opcode == "bfe":
        kind = expect(instruction, ("u32", "s32", "u64", "s64"), ())
        return compute(instruction, ints.extract, kind, "u4", "u4")
    kind = expect(instruction, ("b32", "b64"), ())
    return compute(instruction, ints.insert, kind, kind, "u4", "u4")


def counted(instruction: Instruction) -> Step:
    """popc, clz, brev and bfind."""
    if instruction.opcode == "bfind":
        kind = expect(instruction, ("u32", "s32", "u64", "s64"), ("shiftamt",))
        amount = instruction.has("shiftamt")
        return compute(instruction, lambda a: ints.highest(a, amount), kind)
    kind = expect(instruction, ("b32", "b64"), ())
    names = {"popc": ints.ones, "clz": ints.leading_zeros, "brev": ints.reverse}
    return compute(instruction, names[instruction.opcode], kind)


def permute(instruction: Instruction) -> Step:
    """Prmt in all its modes."""
    modes = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    first = instruction.modifiers[0] if instruction.modifiers else ""
    mode = instruction.modifiers[1] if len(instruction.modifiers) > 1 else ""
    if first != "b32" or mode not in ("", *modes):
        raise unsupported(instruction)
    return compute(instruction, lambda a, b, s: ints.permute(a, b, s, mode), *("u4",) * 3)


def logic3(instruction: Instruction) -> Step:
    """lop3.b32 with an immediate table."""
    expect(instruction, ("b32",), ())
    table = instruction.operands[-1]
    if not isinstance(table, Immediate) or len(instruction.operands) != 5:
        raise unsupported(instruction)
    write = writer(instruction.operands[0])
    reads = [reader(operand, "u4") for operand in instruction.operands[1:4]]

    def run(group: Group, mask: Mask) -> None:
        a, b, c = (read(group) for read in reads)
        write(group, mask, ints.logic3(a, b, c, table.value))

    return run


def with_carry(instruction: Instruction) -> Step:
    """add.cc, addc, sub.cc, subc, mad.cc and madc of 32 or 64 bits."""
    kind = expect(instruction, ("u32", "s32", "b32", "u64", "s64"), ("cc", "lo", "hi"))
    unsigned = "u" + kind[1]
    name = instruction.opcode.rstrip("c")
    takes, gives = instruction.opcode.endswith("c"), instruction.has("cc")
    write = writer(instruction.operands[0])
    multiplies = name == "mad"
    kinds = (kind, kind, unsigned) if multiplies else (unsigned, unsigned)
    reads = [reader(*pair) for pair in zip(instruction.operands[1:], kinds, strict=True)]
    multiply = ints.high if instruction.has("hi") else _low

    def run(group: Group, mask: Mask) -> None:
        values = [read(group) for read in reads]
        first = multiply(values[0], values[1]).view(unsigned) if multiplies else values[0]
        carried = group.carry if takes else np.bool_(False)
        add = _difference if name == "sub" else _sum
        total, carry = add(first, values[-1], carried)
        write(group, mask, total)
        if gives:
            group.carry = carry if mask is None else choose(mask, carry, group.carry)

    return run


def _sum(a: Value, b: Value, carry: Value) -> tuple[Value, Value]:
    part = a + b
    total = part + carry.astype(a.dtype)
    return total, (part < a) | (total < part)


def _difference(a: Value, b: Value, borrow: Value) -> tuple[Value, Value]:
    part = a - b
    total = part - borrow.astype(a.dtype)
    return total, (a < b) | (part < borrow.astype(a.dtype))


def byte_products(instruction: Instruction) -> Step:
    """dp4a: four products of bytes, added."""
    if len(instruction.modifiers) != 2 or not {*instruction.modifiers} <= {"u32", "s32"}:
        raise unsupported(instruction)
    first, second = ("i1" if modifier == "s32" else "u1" for modifier in instruction.modifiers)
    kind = "i4" if "s32" in instruction.modifiers else "u4"

    def run(a: Value, b: Value, c: Value) -> Value:
        total: Any = c.view("i4").astype("i8")
        for place in (0, 8, 16, 24):
            x, y = ((operand >> np.uint32(place)).astype("u1") for operand in (a, b))
            total = total + x.view(first).astype("i8") * y.view(second).astype("i8")
        return total.astype("u4").view(kind)

    return compute(instruction, run, "u4", "u4", "u4")
