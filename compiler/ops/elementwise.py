"""Element by element: arithmetic, comparison, logic, and sums of many tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from compiler.errors import ShapeError
from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, writes
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.checks import differ, require_same_dtype, require_same_shape


def number(value: float) -> float:
    """An attribute as the plainest number that equals it, so that integers stay integers.

    >>> number(2.0), number(0.5)
    (2, 0.5)
    """
    return int(value) if value.is_integer() else value


class Elementwise(Pointwise):
    """Two tensors; the one with fewer axes is aligned with the other's, from `axis` on.

    Its trailing sizes of 1 count for nothing; `axis` -1 aligns the last axes. Tensors with equally
    many axes broadcast as in NumPy, either way. Reference: elementwise_op_function.h.
    """

    X = reads()
    Y = reads()
    Out = writes()
    axis = attr(-1)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Out has X's element type and the broadcast shape; ShapeError where they differ."""
        require_same_dtype(self.kind, X=types["X"], Y=types["Y"])
        return super().infer_types(types)

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """The smaller operand with a size of 1 for each axis it lacks."""
        x, y = types["X"].shape, types["Y"].shape
        if len(x) == len(y):
            return {}
        return {"Y": self.placed(y, x)} if len(x) > len(y) else {"X": self.placed(x, y)}

    def placed(self, small: Shape, large: Shape) -> Shape:
        """`small` among the axes of `large`; ShapeError where `axis` leaves no room for it."""
        axis = len(large) - len(small) if self.axis == -1 else self.axis
        kept = list(small)
        while kept and kept[-1] == 1:
            kept.pop()
        after = len(large) - axis - len(kept)
        if axis < 0 or after < 0:
            raise ShapeError(f"{self.kind}: {list(small)} at axis {axis} exceeds {list(large)}")
        return (1,) * axis + tuple(kept) + (1,) * after


class ElementwiseAdd(Elementwise, op="elementwise_add"):
    """Out = X + Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X + Y

    def grad(self, xp: Xp, X: Shape, Y: Shape, d_Out: Value) -> Value:
        return {"X": d_Out, "Y": d_Out}


class ElementwiseSub(Elementwise, op="elementwise_sub"):
    """Out = X - Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X - Y

    def grad(self, xp: Xp, X: Shape, Y: Shape, d_Out: Value) -> Value:
        return {"X": d_Out, "Y": -d_Out}


class ElementwiseMul(Elementwise, op="elementwise_mul"):
    """Out = X * Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X * Y

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * Y, "Y": d_Out * X}


class ElementwiseDiv(Elementwise, op="elementwise_div"):
    """Out = X / Y; integers are cut off towards zero."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X / Y

    def grad(self, xp: Xp, X: Shape, Y: Value, Out: Value, d_Out: Value) -> Value:
        quotient = d_Out / Y
        return {"X": quotient, "Y": -(quotient * Out)}


class ElementwiseMax(Elementwise, op="elementwise_max"):
    """Out = max(X, Y); where both are equal, the gradient goes to Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.maximum(X, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.greater(X, Y), "Y": d_Out * xp.less_equal(X, Y)}


class ElementwiseMin(Elementwise, op="elementwise_min"):
    """Out = min(X, Y); where both are equal, the gradient goes to Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.minimum(X, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.less(X, Y), "Y": d_Out * xp.greater_equal(X, Y)}


class ElementwisePow(Elementwise, op="elementwise_pow"):
    """Out = X ** Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.power(X, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        by_base = d_Out * Y * xp.power(X, Y - 1)
        return {"X": by_base, "Y": d_Out * xp.log(X) * xp.power(X, Y)}


class Scale(Pointwise, op="scale"):
    """Out = scale * X + bias, or scale * (X + bias) unless `bias_after_scale`."""

    X = reads()
    Out = writes()
    scale = attr(1.0)
    bias = attr(0.0)
    bias_after_scale = attr(True)

    def compute(self, xp: Xp, X: Value) -> Value:
        if self.bias_after_scale:
            return self.biased(self.scaled(X))
        return self.scaled(self.biased(X))

    def scaled(self, X: Value) -> Value:
        """X times the factor; X itself where that is 1."""
        return X if self.scale == 1.0 else X * number(self.scale)

    def biased(self, X: Value) -> Value:
        """X plus the bias; X itself where that is 0."""
        return X if self.bias == 0.0 else X + number(self.bias)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        attrs = {"scale": self.scale, "bias": 0.0, "bias_after_scale": True}
        return [gradient_op("scale", op, grad, attrs)]


def gradient_op(
    kind: str, op: OpDesc, grad: Callable[[str], str], attrs: Mapping[str, Any], index: int = 0
) -> OpDesc:
    """An op of one input and one output that makes the gradient of `X[index]` from that of Out."""
    inputs, outputs = grad(op.outputs["Out"][0]), grad(op.inputs["X"][index])
    return OpDesc(kind, {"X": [inputs]}, {"Out": [outputs]}, attrs)


class Sum(Pointwise, op="sum"):
    """Out = the sum of all tensors in X, which have one shape."""

    X = reads(many=True)
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of any of them; ShapeError where they differ."""
        terms = cast("list[TensorType]", types["X"])
        named = {f"X[{index}]": term for index, term in enumerate(terms)}
        require_same_shape(self.kind, **named)
        require_same_dtype(self.kind, **named)
        return super().infer_types(types)

    def compute(self, xp: Xp, X: list[Value]) -> Value:
        return sum(X[1:], start=X[0])

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        terms = range(len(op.inputs["X"]))
        return [gradient_op("scale", op, grad, {"scale": 1.0}, index) for index in terms]


class Increment(Pointwise, op="increment"):
    """Out = X + step, for a tensor of one element; mostly Out is X."""

    X = reads()
    Out = writes(inplace="X")
    step = attr(1.0)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of X; ShapeError where it has more than one element."""
        if differ(types["X"].numel, 1):
            raise ShapeError(f"increment: X is {types['X']}, expected one element")
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X + number(self.step)


class Compare(Elementwise):
    """Two tensors become one of booleans."""

    force_cpu = attr(False)

    def result(self, operand: TensorType) -> TensorType:
        """Booleans in the broadcast shape."""
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
    """Two tensors of booleans of one shape become a third."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of X; ShapeError where the shapes differ."""
        require_same_shape(self.kind, X=types["X"], Y=types["Y"])
        return super().infer_types(types)

    def result(self, operand: TensorType) -> TensorType:
        """Booleans, whatever the inputs are."""
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
    """Out = exactly one of X and Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.logical_xor(X, Y)


class LogicalNot(Pointwise, op="logical_not"):
    """Out = not X."""

    X = reads()
    Out = writes()

    def result(self, operand: TensorType) -> TensorType:
        """Booleans, whatever the input is."""
        return operand.with_dtype(DType.BOOL)

    def compute(self, xp: Xp, X: Value) -> Value:
        return xp.logical_not(X)
