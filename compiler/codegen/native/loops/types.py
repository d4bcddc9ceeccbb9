"""Element types in memory and in registers, and conversions between them.

A boolean is a byte in memory and one bit in a register; numbers in half precision are computed with
in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.codegen.native.element_types import TYPES
from compiler.codegen.native.functions import cast
from compiler.codegen.native.llvm_ir import (
    F16,
    F32,
    I1,
    I8,
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
from compiler.support.thresholds import threshold

REGISTER: Mapping[DType, Type] = {
    **TYPES, DType.BOOL: I1, DType.FP16: F32, DType.BF16: F32,
}  # fmt: skip
"""The types of elements in registers."""


UNSIGNED = frozenset({DType.BOOL, DType.UINT8})
"""The types of integers without sign."""


NARROW_BITS = threshold(
    "index_bits", 32, "bits", "indices of lanes that need more have 64", small=8
)

_FLOATS = {"float": DType.FP32, "double": DType.FP64}
_INTEGERS = {"i8": DType.INT8, "i16": DType.INT16, "i32": DType.INT32, "i64": DType.INT64}


def literal(type: Type, number: float) -> Value:
    """A number as a constant; one that a float cannot hold is infinite."""
    if type.element in ("float", "half"):
        with np.errstate(over="ignore"):
            number = float(np.float32(number) if type.element == "float" else np.float16(number))
    elif not type.is_float and number != number:
        number = 0
    return constant(type, number)


def convert(f: Function, value: Value, source: DType, element: Type) -> Value:
    """A number of a dtype in another type of registers; floats are truncated to integers."""
    source_type = value.type
    if source_type.element == element.element:
        return value
    if element.element == "i1":
        return f.compare("une" if source_type.is_float else "ne", value, zero(source_type))
    if source_type.is_float and element.is_float:
        return f.convert("fpext" if element.bits > source_type.bits else "fptrunc", value, element)
    if source_type.is_float:
        return cast(f, value, _FLOATS[source_type.element], _INTEGERS[element.element])
    if element.is_float:
        return f.convert("uitofp" if source in UNSIGNED else "sitofp", value, element)
    if element.bits < source_type.bits:
        return f.convert("trunc", value, element)
    return f.convert("zext" if source in UNSIGNED else "sext", value, element)


def narrow_type() -> Type:
    """The type of indices of lanes that are known to fit into it."""
    return Type(f"i{NARROW_BITS.value}")


def index_type(nbytes: int | None) -> Type:
    """The type of indices of lanes behind the first one, in an array of so many bytes."""
    return I64 if nbytes is None or nbytes >> (NARROW_BITS.value - 1) else narrow_type()


def stored_type(dtype: DType) -> Type:
    """The type that loads and stores of a dtype move."""
    return I16 if dtype is DType.BF16 else TYPES[dtype]


def from_memory(f: Function, value: Value, dtype: DType) -> Value:
    """An element as computed with, from one as loaded."""
    if dtype is DType.BOOL:
        return f.compare("ne", value, zero(value.type))
    if dtype is DType.FP16:
        return f.convert("fpext", value, F32)
    if dtype is DType.BF16:
        wide = f.convert("zext", value, I32)
        return f.convert("bitcast", f.binary("shl", wide, constant(wide.type, 16)), F32)
    return value


def to_memory(f: Function, value: Value, dtype: DType) -> Value:
    """An element as stored, from one as computed with; halves are rounded to the nearest."""
    if dtype is DType.BOOL:
        return f.convert("zext", value, I8)
    if dtype is DType.FP16:
        return f.convert("fptrunc", value, F16)
    return _bfloat_bits(f, value) if dtype is DType.BF16 else value


def _bfloat_bits(f: Function, value: Value) -> Value:
    """The nearest bfloat16's bits, ties to even; NaN stays NaN."""
    bits = f.convert("bitcast", value, I32)
    odd = f.binary("and", f.binary("lshr", bits, constant(bits.type, 16)), constant(bits.type, 1))
    nearest = f.add(f.add(bits, constant(bits.type, 0x7FFF)), odd)
    quiet = f.binary("or", bits, constant(bits.type, 0x400000))
    chosen = f.select(f.compare("uno", value, value), quiet, nearest)
    return f.convert("trunc", f.binary("lshr", chosen, constant(bits.type, 16)), I16)


def rounded(f: Function, value: Value, dtype: DType) -> Value:
    """A number in a register, rounded to half precision if its dtype is such."""
    if dtype not in HALVES:
        return value
    return from_memory(f, to_memory(f, value, dtype), dtype)
