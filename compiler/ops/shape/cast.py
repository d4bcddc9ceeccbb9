"""Copies and casts."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.opdef import Pointwise, Value, Xp, reads, required, writes
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.math.elementwise import gradient_op


class Assign(Pointwise, op="assign"):
    """Out = X."""

    X = reads()
    Out = writes()

    def array_variant(self) -> str:
        """Return the op that copies a tensor array."""
        return "copy_array"

    def compute(self, xp: Xp, X: Value) -> Value:
        return X

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_op("assign", op, grad, {})]


class Cast(Pointwise, op="cast"):
    """Out = X in the dtype `out_dtype`; fractions are truncated towards zero."""

    X = reads()
    Out = writes()
    in_dtype = required(int)
    out_dtype = required(int)

    def result(self, operand: TensorType) -> TensorType:
        """Return the shape of X with the dtype `out_dtype`."""
        return operand.with_dtype(DType.of(self.out_dtype))

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.astype(X, element_type(self.out_dtype))

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        attrs = {"in_dtype": self.out_dtype, "out_dtype": self.in_dtype}
        return [gradient_op("cast", op, grad, attrs)]
