"""Element by element: arithmetic of two tensors, scaling, and sums of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from compiler.errors import ShapeError
from compiler.ir.opdef import Pointwise, Share, Types, Value, Xp, attr, reads, writes
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, require_same_shape


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

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """The smaller operand is seen with all axes, unless those it has would change places."""
        x, y = types["X"][0].shape, types["Y"][0].shape
        if len(x) == len(y):
            return PermutedOp(frozenset({"X", "Y", "Out"}))
        small, large = ("Y", "X") if len(x) > len(y) else ("X", "Y")
        full = self.placed(types[small][0].shape, types[large][0].shape)
        axes = [axis for axis in order if full[axis] != 1]
        slots, seen = frozenset({large, "Out"}), tuple(full[axis] for axis in order)
        if len(types[small][0].shape) == 1:
            return PermutedOp(slots, {"axis": order.index(axes[0]) if axes else 0})
        return PermutedOp(slots, views={small: seen}) if axes == sorted(axes) else None

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

    def shares_grad(self, types: Types) -> list[Share]:
        """Both gradients are that of Out, where nothing was spread."""
        same = [slot for slot in ("X", "Y") if types[slot][0].shape == types["Out@GRAD"][0].shape]
        gradients = ["Out@GRAD", *(slot + "@GRAD" for slot in same)]
        return [
            Share((whole, 0), (part, 0))
            for i, whole in enumerate(gradients)
            for part in gradients[i + 1 :]
        ]

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

    linear_in = (("X",), ("Y",))

    def for_rows(self) -> str:
        """A sparse X stays sparse; Y must have one element then."""
        return "elementwise_mul_rows"

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


class ElementwiseFloorDiv(Elementwise, op="elementwise_floordiv"):
    """Out = X / Y for whole numbers, cut off towards zero, as the reference's kernel does."""

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """As for all; ShapeError for what are no whole numbers."""
        require_dtype(self.kind, "X", types["X"], DType.INT32, DType.INT64)
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.floor_divide(X - xp.fmod(X, Y), Y)


class ElementwiseMod(Elementwise, op="elementwise_mod"):
    """Out = what remains of X / Y: with the sign of X for whole numbers, else with that of Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.remainder(X, Y) if holds_floats(X) else xp.fmod(X, Y)


class ElementwisePow(Elementwise, op="elementwise_pow"):
    """Out = X ** Y; for whole numbers what lies behind the point is cut off."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.power(X if holds_floats(X) else X * 1.0, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        by_base = d_Out * Y * xp.power(X, Y - 1)
        return {"X": by_base, "Y": d_Out * xp.log(X) * xp.power(X, Y)}


class Minus(Pointwise, op="minus"):
    """Out = X - Y, for tensors of one shape."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The type of X; ShapeError where Y has another."""
        require_same_dtype(self.kind, X=types["X"], Y=types["Y"])
        require_same_shape(self.kind, X=types["X"], Y=types["Y"])
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X - Y

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        back = {slot: grad(op.inputs[slot][0]) for slot in ("X", "Y")}
        d_out = {"X": [grad(op.outputs["Out"][0])]}
        ops = [("X", 1.0), ("Y", -1.0)]
        return [OpDesc("scale", d_out, {"Out": [back[slot]]}, {"scale": by}) for slot, by in ops]


def first_given(value: Value, otherwise: Value) -> Value:
    """An optional input that goes before an attribute.

    >>> first_given(None, 2.0), first_given(3, 2.0)
    (2.0, 3)
    """
    return otherwise if value is None else value


def holds_floats(value: Value) -> bool:
    """True for an array, or an expression, of floating-point numbers."""
    return getattr(value.dtype, "numpy", value.dtype).kind in "fV"


class Scale(Pointwise, op="scale"):
    """Out = scale * X + bias, or scale * (X + bias) unless `bias_after_scale`.

    ScaleTensor goes before `scale`. For whole numbers what lies behind the point of factor and bias
    is cut off first. Reference: scale_op.h.
    """

    X = reads()
    ScaleTensor = reads(optional=True, no_grad=True)
    Out = writes()
    scale = attr(1.0)
    bias = attr(0.0)
    bias_after_scale = attr(True)

    def for_rows(self) -> str:
        """A sparse X stays sparse, unless a bias makes its other rows more than 0."""
        return "" if self.bias else "scale_rows"

    def compute(self, xp: Xp, X: Value, ScaleTensor: Value) -> Value:
        floats = holds_floats(X)
        factor = first_given(ScaleTensor, number(self.scale) if floats else int(self.scale))
        bias = number(self.bias) if floats else int(self.bias)
        if self.bias_after_scale:
            return biased(scaled(X, factor), bias)
        return scaled(biased(X, bias), factor)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        attrs = {"scale": self.scale, "bias": 0.0, "bias_after_scale": True}
        back = gradient_op("scale", op, grad, attrs)
        factors = {slot: names for slot, names in op.inputs.items() if slot == "ScaleTensor"}
        return [OpDesc("scale", back.inputs | factors, back.outputs, attrs)]


def scaled(X: Value, factor: Value) -> Value:
    """X times a factor; X itself where that is 1."""
    return X if isinstance(factor, int) and factor == 1 else X * factor


def biased(X: Value, bias: float) -> Value:
    """X plus a bias; X itself where that is 0."""
    return X if bias == 0 else X + bias


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

    def for_arrays(self) -> str:
        """Tensor arrays are added tensor by tensor."""
        return "sum_arrays"

    def for_rows(self) -> str:
        """Sparse terms only: their rows, one term after the other."""
        return "sum_rows"

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

    def undo(self, op: OpDesc) -> OpDesc:
        """The op that counts back, for gradients of what stands before this one."""
        names = {"X": op.outputs["Out"]}, {"Out": op.inputs["X"]}
        return OpDesc("increment", *names, {"step": -self.step}, op.source)
