"""Steps of comparisons, selections, moves and conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tools.ptx import floats
from tools.ptx.arithmetic import BITS, INTEGERS, compute, expect, joined
from tools.ptx.errors import unsupported
from tools.ptx.float_steps import MODES, half_bits, half_value
from tools.ptx.group import Group, Mask, Value, array, choose
from tools.ptx.instructions import BYTES, Instruction, Operand, Pair, Vector
from tools.ptx.integers import saturated
from tools.ptx.values import DTYPES, Binary, Function, Read, Step, reader, writer

Compare = Callable[[Value, Value], Value]
_ORDERED: Mapping[str, Compare] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BOOLEAN: Mapping[str, Binary] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")


def compare(instruction: Instruction) -> Step:
    """Setp of every type; the second destination takes the opposite, or that of the upper half."""
    how, *others, kind = instruction.modifiers
    allowed = {*_BOOLEAN, "ftz"}
    if kind not in (*BITS, *INTEGERS, *_FLOATS) or not {*others} <= allowed:
        raise unsupported(instruction)
    test = _test(instruction, how, kind)
    test = _flushing(test) if "ftz" in others else test
    joins = next((_BOOLEAN[modifier] for modifier in others if modifier in _BOOLEAN), None)
    return _compare(instruction, test, joins, kind)


def _flushing(test: Compare) -> Compare:
    return lambda a, b: test(floats.flushed(a), floats.flushed(b))


def _test(instruction: Instruction, how: str, kind: str) -> Compare:
    """The comparison of a modifier; of floats, `…u` also holds if one is NaN."""
    if kind not in _FLOATS:
        how = _UNSIGNED.get(how, how)
        if how not in _ORDERED:
            raise unsupported(instruction, f"the comparison {how}")
        return _ORDERED[how]
    if how == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if how == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    unordered = how.endswith("u") and how[:-1] in _ORDERED
    if not unordered and how not in _ORDERED:
        raise unsupported(instruction, f"the comparison {how}")
    holds = _ORDERED[how[:-1] if unordered else how]
    if unordered:
        return lambda a, b: holds(a, b) | np.isnan(a) | np.isnan(b)
    return lambda a, b: holds(a, b) & ~(np.isnan(a) | np.isnan(b))


def _compare(instruction: Instruction, test: Compare, joins: Binary | None, kind: str) -> Step:
    to, first, second, *third = instruction.operands
    one, two = (to.first, to.second) if isinstance(to, Pair) else (to, None)
    a, b = (_operand(operand, kind, 0) for operand in (first, second))
    upper = (
        [_operand(operand, kind, 16) for operand in (first, second)] if kind[-2:] == "x2" else []
    )
    third_read = reader(third[0], "?") if third and joins else None
    if bool(third) != bool(joins):
        raise unsupported(instruction, "its operands")
    write, write_two = writer(one), writer(two)

    def run(group: Group, mask: Mask) -> None:
        low = test(a(group), b(group))
        high = test(upper[0](group), upper[1](group)) if upper else ~low
        if third_read is not None and joins is not None:
            other = third_read(group)
            low, high = joins(low, other), joins(high, other)
        write(group, mask, low)
        write_two(group, mask, high)

    return run


def _operand(operand: Operand | None, kind: str, side: int) -> Read:
    if kind in ("f32", "f64") or kind not in _FLOATS:
        return reader(operand, DTYPES[kind])
    brain, pair = kind[0] == "b", kind.endswith("x2")
    bits = reader(operand, "u4" if pair else "u2")
    if not pair:
        return lambda group: half_value(bits(group), brain)
    return lambda group: half_value((bits(group) >> np.uint32(side)).astype("u2"), brain)


def _selected(a: Value, b: Value, holds: Value) -> Value:
    return choose(holds, a, b)


def select(instruction: Instruction) -> Step:
    """Selp."""
    kind = expect(instruction, (*BITS, *INTEGERS, "f32", "f64"), ())
    return compute(instruction, _selected, kind, kind, "?")


def move(instruction: Instruction) -> Step:
    """Mov of a value, or between a register and a vector of its parts."""
    kind = expect(instruction, (*BITS, *INTEGERS, "f32", "f64", "f16", "pred"), ())
    if len(instruction.operands) != 2:
        raise unsupported(instruction)
    to, source = instruction.operands
    if isinstance(to, Vector):
        return _unpack(to, source, BYTES[instruction.type])
    if isinstance(source, Vector):
        return _pack(to, source, BYTES[instruction.type])
    read, write = reader(source, kind), writer(to)
    return lambda group, mask: write(group, mask, read(group))


def _pack(to: Operand | None, source: Vector, size: int) -> Step:
    width = size // len(source.parts)
    reads = [reader(part, f"u{width}") for part in source.parts]
    write, kind = writer(to), np.dtype(f"u{size}")

    def run(group: Group, mask: Mask) -> None:
        total = kind.type(0)
        for place, read in enumerate(reads):
            total = total | (read(group).astype(kind) << kind.type(8 * width * place))
        write(group, mask, total)

    return run


def _unpack(to: Vector, source: Operand | None, size: int) -> Step:
    width = size // len(to.parts)
    writes = [writer(part) for part in to.parts]
    read, kind = reader(source, f"u{size}"), np.dtype(f"u{size}")

    def run(group: Group, mask: Mask) -> None:
        value = read(group)
        for place, write in enumerate(writes):
            write(group, mask, (value >> kind.type(8 * width * place)).astype(f"u{width}"))

    return run


def convert(instruction: Instruction) -> Step:
    """Cvt between integers, floats, halves, bfloat16 and tf32, alone or to pairs."""
    *modifiers, to, source = instruction.modifiers
    unknown = {*modifiers} - {*MODES, *floats.ROUND, "rna", "ftz", "sat", "relu"}
    if unknown:
        raise unsupported(instruction, f"the modifier {sorted(unknown)[0]}")
    if to in ("f16x2", "bf16x2") and source == "f32":
        return _to_pair(instruction, modifiers, to[0] == "b")
    if to not in DTYPES or source not in DTYPES or to.endswith("x2") or source.endswith("x2"):
        raise unsupported(instruction)
    function = _conversion(instruction, modifiers, to, source)
    return compute(instruction, function, DTYPES[source])


def _to_pair(instruction: Instruction, modifiers: Sequence[str], brain: bool) -> Step:
    if {*modifiers} - {"rn", "rz", "relu"} or len(instruction.operands) != 3:
        raise unsupported(instruction)
    mode = "rz" if "rz" in modifiers else "rn"
    relu = "relu" in modifiers

    def run(high: Value, low: Value) -> Value:
        first, second = (floats.positive(half) if relu else half for half in (low, high))
        return joined(_half_of(first, brain, mode), _half_of(second, brain, mode))

    return compute(instruction, run, "f4", "f4")


def _half_of(value: Value, brain: bool, mode: str) -> Value:
    if brain:
        return floats.to_bfloat(value, mode)
    if mode == "rn":
        return half_bits(value, False)
    cut = floats.directed(value.astype("f2"), value, mode)
    return choose(np.isnan(value), np.uint16(0x7FFF), array(cut).view("u2"))


def _conversion(
    instruction: Instruction, modifiers: Sequence[str], to: str, source: str
) -> Function:
    from_float, to_float = source[0] in "fb", to[0] in "fbt"
    whole = next((modifier for modifier in modifiers if modifier in floats.ROUND), "")
    mode = next((modifier for modifier in modifiers if modifier in (*MODES, "rna")), "rn")
    if (source[0] == "b" and source != "bf16") or (to[0] == "b" and to != "bf16"):
        raise unsupported(instruction)
    widen = _widened(source, "ftz" in modifiers)
    if from_float and to_float:
        return _between_floats(to, source, whole, mode, modifiers, widen)
    if from_float:
        return lambda a: floats.to_integer(widen(a), DTYPES[to], whole or "rzi")
    if to_float:
        return _integer_to_float(to, mode, "sat" in modifiers)
    kind = DTYPES[to]
    if "sat" in modifiers:
        return lambda a: saturated(a, kind)
    return lambda a: a.astype(kind)


def _widened(source: str, ftz: bool) -> Callable[[Value], Value]:
    """A value as float32 or float64; subnormal float32 as zero with `ftz`."""
    if source == "bf16":
        return floats.from_bfloat
    if source == "f32" and ftz:
        return floats.flushed
    return lambda a: a


def _between_floats(
    to: str,
    source: str,
    whole: str,
    mode: str,
    modifiers: Sequence[str],
    widen: Callable[[Value], Value],
) -> Callable[[Value], Value]:
    sat, relu, ftz = "sat" in modifiers, "relu" in modifiers, "ftz" in modifiers

    def run(a: Value) -> Value:
        value = widen(a)
        value = floats.ROUND[whole](value) if whole else value
        value = floats.clamped(value) if sat else value
        value = floats.positive(value) if relu else value
        rounded = _narrowed(value, to, mode)
        return floats.flushed(rounded) if ftz and to == "f32" else rounded

    return run


def _narrowed(value: Value, to: str, mode: str) -> Value:
    if to == "bf16":
        return floats.to_bfloat(value if value.dtype == np.float64 else value.astype("f4"), mode)
    if to == "tf32":
        return floats.to_tf32(value.astype("f4"), mode)
    kind = np.dtype(DTYPES[to])
    if kind.itemsize >= value.dtype.itemsize:
        return value.astype(kind)
    if to == "f16":
        return _half_of(value, False, mode)
    return floats.directed(value.astype(kind), value, mode)


def _integer_to_float(to: str, mode: str, sat: bool) -> Callable[[Value], Value]:
    if to == "bf16":
        return lambda a: floats.to_bfloat(floats.from_integer(a, "f8", "rn"), mode)
    kind = DTYPES[to]
    if sat:
        return lambda a: floats.clamped(floats.from_integer(a, kind, mode))
    return lambda a: floats.from_integer(a, kind, mode)
