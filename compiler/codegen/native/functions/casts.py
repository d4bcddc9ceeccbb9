"""Casts between element types, as in NumPy on x86.

Floats round to nearest even. Floats become integers by truncation; NaN and what exceeds the
integers of 32 bits (64 for int64) become the smallest one, of which narrower types keep the lowest
bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native.element_types import TYPES
from compiler.codegen.native.functions.arithmetic import is_true
from compiler.codegen.native.functions.floats import (
    absolute,
    bits_of,
    float_of,
    is_below,
)
from compiler.codegen.native.llvm_ir import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I16,
    I32,
    I64,
    Function,
    Type,
    Value,
    constant,
    zero,
)
from compiler.ir.types import HALVES, DType

ELEMENTS: Mapping[DType, Type] = {**TYPES, DType.BOOL: I1}
"""The element type in IR; booleans are a bit in registers, and a byte in memory."""

_UNSIGNED = frozenset({DType.BOOL, DType.UINT8})


def cast(f: Function, x: Value, source: DType, target: DType) -> Value:
    """Convert a value of type `source` to `target`."""
    if source is target:
        return x
    if source in HALVES:
        wide = _from_half(f, x, source)
        return cast(f, wide, DType.FP32, target)
    if target is DType.BOOL:
        return is_true(f, x)
    if target in HALVES:
        return _to_half(f, x, source, target)
    if source.is_float and target.is_float:
        return f.convert("fptrunc" if target is DType.FP32 else "fpext", x, ELEMENTS[target])
    if source.is_float:
        return _to_integer(f, x, ELEMENTS[target])
    return _from_integer(f, x, source, ELEMENTS[target])


def _from_integer(f: Function, x: Value, source: DType, target: Type) -> Value:
    """Convert an integer or boolean to an integer or a float."""
    if target.is_float:
        return f.convert("uitofp" if source in _UNSIGNED else "sitofp", x, target)
    if target.bits == x.type.bits:
        return x
    if target.bits < x.type.bits:
        return f.convert("trunc", x, target)
    return f.convert("zext" if source in _UNSIGNED else "sext", x, target)


def _to_integer(f: Function, x: Value, target: Type) -> Value:
    """Truncate a float; out of range it is the smallest integer."""
    wide = I64 if target.bits == 64 else I32
    fits = is_below(f, absolute(f, x), 2.0 ** (wide.bits - 1))
    whole = f.convert("fptosi", f.select(fits, x, zero(x.type)), wide)
    whole = f.select(fits, whole, constant(whole.type, -(1 << (wide.bits - 1))))
    return whole if target == wide else f.convert("trunc", whole, target)


def _from_half(f: Function, x: Value, source: DType) -> Value:
    """A half as float32."""
    if source is DType.FP16:
        return f.convert("fpext", x, F32)
    bits = f.convert("zext", f.convert("bitcast", x, I16), I32)
    return float_of(f, f.binary("shl", bits, constant(bits.type, 16)))


def _to_half(f: Function, x: Value, source: DType, target: DType) -> Value:
    """Round to a half: to float16 with one rounding, to bfloat16 by way of float32 as NumPy."""
    if source is DType.FP64 and target is DType.FP16:
        return f.convert("fptrunc", _rounded_to_odd(f, x), F16)
    single = cast(f, x, source, DType.FP32)
    return f.convert("fptrunc", single, F16) if target is DType.FP16 else _to_bfloat(f, single)


def _rounded_to_odd(f: Function, x: Value) -> Value:
    """A double as float32: truncated, the last bit set if it is not exact.

    Rounding that to a half is rounding the double (S. Boldo and G. Melquiond, "When double
    rounding is odd", 2005).
    """
    near = f.convert("fptrunc", x, F32)
    back = f.convert("fpext", near, F64)
    bits = bits_of(f, near)
    one = constant(bits.type, 1)
    too_large = f.compare("ogt", absolute(f, back), absolute(f, x))
    truncated = f.select(too_large, f.sub(bits, one), bits)
    odd = f.binary("or", truncated, one)
    return float_of(f, f.select(f.compare("one", back, x), odd, bits))


def _to_bfloat(f: Function, x: Value) -> Value:
    """The nearest bfloat16: the upper half of the bits of a float32, rounded."""
    bits = bits_of(f, x)
    half = constant(bits.type, 0x7FFF)
    shift = constant(bits.type, 16)
    last = f.binary("and", f.binary("lshr", bits, shift), constant(bits.type, 1))
    rounded = f.add(bits, f.add(last, half))
    quiet = f.binary("or", bits, constant(bits.type, 1 << 22))
    chosen = f.select(f.compare("uno", x, x), quiet, rounded)
    upper = f.convert("trunc", f.binary("lshr", chosen, shift), I16)
    return f.convert("bitcast", upper, BF16)
