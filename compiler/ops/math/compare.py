"""Pointwise comparisons and logical ops with boolean outputs.

Reference: compare_op.cc, logical_op.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, writes
from compiler.ir.types import DType, TensorType
from compiler.ops.math.elementwise import Elementwise
from compiler.ops.type_checks import require_same_shape


class Compare(Elementwise):
    """A pointwise comparison of two tensors; Out is boolean."""

    force_cpu = attr(False)

    def result(self, operand: TensorType) -> TensorType:
        """Return a boolean tensor type of the broadcast shape."""
        return operand.with_dtype(DType.BOOL)


class LessThan(Compare, op="less_than"):
    """Out = X < Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.less(X, Y)


class LessEqual(Compare, op="less_equal"):
    """Out = X <= Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.less_equal(X, Y)


class GreaterThan(Compare, op="greater_than"):
    """Out = X > Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.greater(X, Y)


class GreaterEqual(Compare, op="greater_equal"):
    """Out = X >= Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.greater_equal(X, Y)


class Equal(Compare, op="equal"):
    """Out = X == Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.equal(X, Y)


class NotEqual(Compare, op="not_equal"):
    """Out = X != Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.not_equal(X, Y)


class Logical(Pointwise):
    """A pointwise logical op of two boolean tensors of equal shape."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raise ShapeError if the shapes differ."""
        require_same_shape(self.kind, X=types["X"], Y=types["Y"])
        return super().infer_types(types)

    def result(self, operand: TensorType) -> TensorType:
        """Return a boolean type of the same shape."""
        return operand.with_dtype(DType.BOOL)


class LogicalAnd(Logical, op="logical_and"):
    """Out = X and Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.logical_and(X, Y)


class LogicalOr(Logical, op="logical_or"):
    """Out = X or Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.logical_or(X, Y)


class LogicalXor(Logical, op="logical_xor"):
    """Out = X xor Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.logical_xor(X, Y)


class LogicalNot(Pointwise, op="logical_not"):
    """Out = not X."""

    X = reads()
    Out = writes()

    def result(self, operand: TensorType) -> TensorType:
        """Return a boolean type of the same shape."""
        return operand.with_dtype(DType.BOOL)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.logical_not(X)
