"""Tensors with literal values in the program: `assign_value` and `fill`."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.shape.creation import number_source, parse_number
from compiler.ops.shared_kernels import numbers_of
from compiler.ops.type_checks import literal_shape


class AssignValue(OpDef, op="assign_value"):
    """Out = the values of the attribute for its dtype, in the shape `shape`.

    Reference: assign_value_op.h.
    """

    Out = writes()
    shape = attr_list(int)
    dtype = attr(DType.FP32.code)
    bool_values = attr_list(bool)
    fp32_values = attr_list(float)
    int32_values = attr_list(int)
    int64_values = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        dtype = DType.of(self.dtype)
        if dtype not in (DType.BOOL, DType.FP32, DType.INT32, DType.INT64):
            raise BadAttribute(f"{self.kind} has no values of {dtype.text}")
        type = TensorType(dtype, literal_shape(self.kind, self.shape))
        if type.numel != len(self.values()):
            raise ShapeError(f"{self.kind}: {len(self.values())} values do not fill {type}")
        return type

    def values(self) -> list[Any]:
        """Return the value list of the dtype; booleans may be stored as integers."""
        by_code: dict[int, list[Any]] = {
            DType.BOOL.code: self.bool_values,
            DType.FP32.code: self.fp32_values,
            DType.INT32.code: self.int32_values,
            DType.INT64.code: self.int64_values,
        }
        return by_code[self.dtype]

    def numpy(self) -> Array:
        lists = {0: self.bool_values, 2: self.int32_values, 3: self.int64_values}
        values = lists.get(self.dtype, self.fp32_values)
        return np.array(values, element_type(self.dtype)).reshape(self.shape)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        dtype = repr(Out.type.dtype.numpy.name)
        listed = ", ".join(map(number_source, self.values()))
        values = k.at_bind(f"np.array([{listed}], {dtype})", [], "values")
        k.line(f"np.copyto({Out}, {values}.reshape({tuple(self.shape)}))")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        numbers_of(k, s.Out, self.values())


class Fill(OpDef, op="fill"):
    """Out = the values `value`, in the shape `shape`. Reference: fill_op.h."""

    Out = writes()
    value = attr_list(float, WIDE)
    shape = attr_list(int)
    dtype = attr(DType.FP32.code)
    force_cpu = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        type = TensorType(DType.of(self.dtype), literal_shape(self.kind, self.shape))
        if type.numel != len(self.value):
            raise ShapeError(f"fill: {len(self.value)} values do not fill {type}")
        return type

    def numpy(self) -> Array:
        return np.array(self.value).astype(element_type(self.dtype)).reshape(self.shape)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        dtype = s.Out.type.dtype.numpy
        numbers_of(k, s.Out, [parse_number("", text, dtype) for text in self.value])
