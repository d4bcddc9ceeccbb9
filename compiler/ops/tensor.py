"""Making, copying and reshaping tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import (
    OpDef,
    Pointwise,
    Value,
    Xp,
    attr,
    reads,
    required,
    type_of,
    writes,
)
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.checks import differ, literal_shape, numeric
from compiler.ops.elementwise import gradient_op


class FillConstant(OpDef, op="fill_constant"):
    """Out = `value` everywhere, in the shape `shape`.

    `str_value` is the same number as text, for what a float32 attribute cannot hold; it goes
    first where it is given. Reference: fill_constant_op.h.
    """

    Out = writes()
    shape = attr(list[int]())
    dtype = attr(DType.FP32.code)
    value = attr(0.0)
    str_value = attr("")
    force_cpu = attr(False)

    def infer(self) -> TensorType:
        return TensorType(DType.of(self.dtype), literal_shape(self.kind, self.shape))

    def number(self) -> float:
        """The value as a Python number that the element type can hold."""
        text = self.str_value.strip()
        exact = text.lstrip("+-").isdigit()
        value = int(text) if exact else float(text) if text else self.value
        return value if DType.of(self.dtype).is_float else int(value)

    def numpy(self) -> Array:
        return np.full(self.shape, self.number(), DType.of(self.dtype).numpy)

    def lower(self, k: Kernel, Out: Operand) -> None:
        k.line(f"{Out}.fill({_number_text(self.number())})")


def _number_text(number: float) -> str:
    """A number as Python, also where it has no literal."""
    return repr(number) if math.isfinite(number) else f"float('{number}')"


class AssignValue(OpDef, op="assign_value"):
    """Out = the numbers in the attribute of its element type, in the shape `shape`.

    Reference: assign_value_op.h.
    """

    Out = writes()
    shape = attr(list[int]())
    dtype = attr(DType.FP32.code)
    bool_values = attr(list[bool]())
    fp32_values = attr(list[float]())
    int32_values = attr(list[int]())
    int64_values = attr(list[int]())

    def infer(self) -> TensorType:
        type = TensorType(DType.of(self.dtype), literal_shape(self.kind, self.shape))
        if type.numel != len(self.values()):
            raise ShapeError(f"{self.kind}: {len(self.values())} values do not fill {type}")
        return type

    def values(self) -> list[Any]:
        """The list that goes with the element type; whole numbers say which truths hold."""
        by_dtype: dict[DType, list[Any]] = {
            DType.BOOL: self.bool_values,
            DType.FP32: self.fp32_values,
            DType.INT32: self.int32_values,
            DType.INT64: self.int64_values,
        }
        dtype = DType.of(self.dtype)
        if dtype not in by_dtype:
            raise BadAttribute(f"{self.kind} has no values of {dtype.text}")
        return by_dtype[dtype]

    def numpy(self) -> Array:
        return np.array(self.values(), DType.of(self.dtype).numpy).reshape(self.shape)

    def lower(self, k: Kernel, Out: Operand) -> None:
        dtype = f"np.{Out.type.dtype.numpy.name}"
        listed = ", ".join(map(_number_text, self.values()))
        values = k.once(f"np.array([{listed}], {dtype})", [], "values")
        k.line(f"np.copyto({Out}, {values}.reshape({tuple(self.shape)}))")


class FillZerosLike(Pointwise, op="fill_zeros_like"):
    """Out = 0 everywhere, in the type of X."""

    X = reads(shape_only=True)
    Out = writes()

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.zeros_like(X)


class Assign(Pointwise, op="assign"):
    """Out = X."""

    X = reads()
    Out = writes()

    def compute(self, xp: Xp, X: Value) -> Value:
        return X

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_op("assign", op, grad, {})]


class Cast(Pointwise, op="cast"):
    """Out = X in the element type `out_dtype`; fractions are cut off towards zero."""

    X = reads()
    Out = writes()
    in_dtype = required(int)
    out_dtype = required(int)

    def result(self, operand: TensorType) -> TensorType:
        """The shape of X in the wanted element type."""
        return operand.with_dtype(DType.of(self.out_dtype))

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.astype(X, DType.of(self.out_dtype).numpy)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        attrs = {"in_dtype": self.out_dtype, "out_dtype": self.in_dtype}
        return [gradient_op("cast", op, grad, attrs)]


class Reshape2(OpDef, op="reshape2"):
    """Out = the elements of X in the shape `shape`.

    A 0 keeps the size of X at that place; one -1 takes what remains. XShape brings X's shape to the
    gradient, after a first size of 0, and holds no data. Reference: reshape_op.cc.
    """

    X = reads()
    Out = writes(inplace="X")
    XShape = writes()
    shape = attr(list[int]())

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        return {"Out": X.with_shape(self.wanted(X)), "XShape": X.with_shape((0, *X.shape))}

    def wanted(self, X: TensorType) -> Shape:
        """The shape of Out; ShapeError where X has another number of elements."""
        kept = [axis for axis, size in enumerate(self.shape) if size == 0]
        refusal = ShapeError(f"reshape2: X is {X}, which 'shape' {self.shape} does not fit")
        odd = self.shape.count(-1) > 1 or any(size < -1 for size in self.shape)
        if odd or any(axis >= X.rank for axis in kept):
            raise refusal
        rest = product(size for axis, size in enumerate(X.shape) if axis not in kept)
        sizes: list[Size] = [X.shape[a] if a in kept else n for a, n in enumerate(self.shape)]
        if -1 in self.shape:
            place = self.shape.index(-1)
            sizes[place] = rest // math.prod(size for size in self.shape if size > 0)
        if differ(product(sizes), X.numel):
            raise refusal
        return tuple(sizes)

    def infer_grad(self, XShape: TensorType, d_Out: TensorType) -> dict[str, TensorType]:
        return {"X": d_Out.with_shape(XShape.shape[1:])}

    def numpy(self, X: Array) -> dict[str, Array]:
        types = self.infer(type_of(X))
        shape = numeric(types["Out"].shape)
        return {"Out": X.reshape(shape), "XShape": np.empty((0, *X.shape), X.dtype)}

    def grad(self, XShape: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out.reshape(numeric(XShape[1:]))}

    def lower(self, k: Kernel, X: Operand, Out: Operand | None) -> None:
        if Out is not None and not k.aliased(X, Out):
            k.line(f"np.copyto({Out.view(X.shape)}, {X})")

    def lower_grad(self, k: Kernel, d_Out: Operand, d_X: Operand) -> None:
        if not k.aliased(d_Out, d_X):
            k.line(f"np.copyto({d_X.view(d_Out.shape)}, {d_Out})")
