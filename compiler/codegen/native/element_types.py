"""Element types of arrays as LLVM types."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.native import llvm_ir as ir
from compiler.ir.types import DType

TYPES: Mapping[DType, ir.Type] = {
    DType.BOOL: ir.I8,
    DType.INT8: ir.I8,
    DType.UINT8: ir.I8,
    DType.INT16: ir.I16,
    DType.INT32: ir.I32,
    DType.INT64: ir.I64,
    DType.FP16: ir.F16,
    DType.BF16: ir.BF16,
    DType.FP32: ir.F32,
    DType.FP64: ir.F64,
}
"""How each element type lies in memory; a boolean is a byte, 0 or 1."""

COMPUTED = frozenset({DType.FP32, DType.FP64})
"""The element types that products and image kernels compute in."""


def dtype_of(type: ir.Type) -> DType:
    """The element type of arrays of an LLVM type, signed."""
    return next(
        dtype
        for dtype, element_type in TYPES.items()
        if element_type == type and dtype is not DType.BOOL
    )
