"""Pointwise arithmetic of two tensors, scaling, and sums of many tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from compiler.errors import ShapeError
from compiler.ir.opdef import Pointwise, Share, Types, Value, Xp, attr, reads, writes
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, Shape, TensorType
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, require_same_shape


def int_if_integral(value: float) -> float:
    """Return a float as an int if it is integral, so that integer tensors keep their dtype.

    >>> int_if_integral(2.0), int_if_integral(0.5)
    (2, 0.5)
    """
    return int(value) if value.is_integer() else value


class Elementwise(Pointwise):
    """A pointwise op of two tensors; the one of lower rank is aligned with the other at `axis`.

    Its trailing sizes of 1 are ignored; `axis` -1 aligns the last axes. Tensors of equal rank
    broadcast as in NumPy, in both directions. Reference: elementwise_op_function.h.
    """

    X = reads()
    Y = reads()
    Out = writes()
    axis = attr(-1)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return X's dtype and the broadcast shape; raise ShapeError if the dtypes differ."""
        require_same_dtype(self.kind, X=types["X"], Y=types["Y"])
        return super().infer_types(types)

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Return the view shape of the lower-rank operand, padded with axes of size 1."""
        x, y = types["X"].shape, types["Y"].shape
        if len(x) == len(y):
            return {}
        return (
            {"Y": self.aligned_shape(y, x)} if len(x) > len(y) else {"X": self.aligned_shape(x, y)}
        )

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute the op with a view of the smaller operand, unless its axes would be reordered."""
        x, y = types["X"][0].shape, types["Y"][0].shape
        if len(x) == len(y):
            return PermutedOp(frozenset({"X", "Y", "Out"}))
        small, large = ("Y", "X") if len(x) > len(y) else ("X", "Y")
        full = self.aligned_shape(types[small][0].shape, types[large][0].shape)
        axes = [axis for axis in order if full[axis] != 1]
        slots, view = frozenset({large, "Out"}), tuple(full[axis] for axis in order)
        if len(types[small][0].shape) == 1:
            return PermutedOp(slots, {"axis": order.index(axes[0]) if axes else 0})
        return PermutedOp(slots, views={small: view}) if axes == sorted(axes) else None

    def aligned_shape(self, small: Shape, large: Shape) -> Shape:
        """Return `small` padded to `large`'s rank; raise ShapeError if it does not fit."""
        axis = len(large) - len(small) if self.axis == -1 else self.axis
        trimmed = list(small)
        while trimmed and trimmed[-1] == 1:
            trimmed.pop()
        after = len(large) - axis - len(trimmed)
        if axis < 0 or after < 0:
            raise ShapeError(f"{self.kind}: {list(small)} at axis {axis} exceeds {list(large)}")
        return (1,) * axis + tuple(trimmed) + (1,) * after


class ElementwiseAdd(Elementwise, op="elementwise_add"):
    """Out = X + Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X + Y

    def shares_grad(self, types: Types) -> list[Share]:
        """Alias each gradient with Out's, where the operand was not broadcast."""
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

    def sparse_variant(self) -> str:
        """A sparse X yields a sparse Out; Y must then have one element."""
        return "elementwise_mul_rows"

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X * Y

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * Y, "Y": d_Out * X}


class ElementwiseDiv(Elementwise, op="elementwise_div"):
    """Out = X / Y; integer quotients are truncated towards zero."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return X / Y

    def grad(self, xp: Xp, X: Shape, Y: Value, Out: Value, d_Out: Value) -> Value:
        quotient = d_Out / Y
        return {"X": quotient, "Y": -(quotient * Out)}


class ElementwiseMax(Elementwise, op="elementwise_max"):
    """Out = max(X, Y); at ties the gradient is Y's."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.maximum(X, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.greater(X, Y), "Y": d_Out * xp.less_equal(X, Y)}


class ElementwiseMin(Elementwise, op="elementwise_min"):
    """Out = min(X, Y); at ties the gradient is Y's."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.minimum(X, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        return {"X": d_Out * xp.less(X, Y), "Y": d_Out * xp.greater_equal(X, Y)}


class ElementwiseFloorDiv(Elementwise, op="elementwise_floordiv"):
    """Out = X / Y for integers, truncated towards zero as in the reference's kernel."""

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer as for every elementwise op; raise ShapeError for non-integer dtypes."""
        require_dtype(self.kind, "X", types["X"], DType.INT32, DType.INT64)
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.floor_divide(X - xp.fmod(X, Y), Y)


class ElementwiseMod(Elementwise, op="elementwise_mod"):
    """Out = the remainder of X / Y: integers have the sign of X, floats the sign of Y."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.remainder(X, Y) if is_floating(X) else xp.fmod(X, Y)


class ElementwisePow(Elementwise, op="elementwise_pow"):
    """Out = X ** Y; integer results are truncated."""

    def compute(self, xp: Xp, X: Value, Y: Value) -> Value:
        return xp.power(X if is_floating(X) else X * 1.0, Y)

    def grad(self, xp: Xp, X: Value, Y: Value, d_Out: Value) -> Value:
        by_base = d_Out * Y * xp.power(X, Y - 1)
        return {"X": by_base, "Y": d_Out * xp.log(X) * xp.power(X, Y)}


class Minus(Pointwise, op="minus"):
    """Out = X - Y, for tensors of equal shape."""

    X = reads()
    Y = reads()
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raise ShapeError if Y's differs."""
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


def input_or_attr(value: Value, otherwise: Value) -> Value:
    """Return an optional input if it is present, else the attribute.

    >>> input_or_attr(None, 2.0), input_or_attr(3, 2.0)
    (2.0, 3)
    """
    return otherwise if value is None else value


def is_floating(value: Value) -> bool:
    """Return whether an array or a kernel expression is floating-point."""
    return getattr(value.dtype, "numpy", value.dtype).kind in "fV"


class Scale(Pointwise, op="scale"):
    """Out = scale * X + bias, or scale * (X + bias) unless `bias_after_scale`.

    ScaleTensor overrides `scale`. For integer X, scale and bias are truncated to integers first.
    Reference: scale_op.h.
    """

    X = reads()
    ScaleTensor = reads(optional=True, no_grad=True)
    Out = writes()
    scale = attr(1.0)
    bias = attr(0.0)
    bias_after_scale = attr(True)

    def sparse_variant(self) -> str:
        """A sparse X yields a sparse Out, unless a bias makes the missing rows non-zero."""
        return "" if self.bias else "scale_rows"

    def compute(self, xp: Xp, X: Value, ScaleTensor: Value) -> Value:
        floats = is_floating(X)
        factor = input_or_attr(
            ScaleTensor, int_if_integral(self.scale) if floats else int(self.scale)
        )
        bias = int_if_integral(self.bias) if floats else int(self.bias)
        if self.bias_after_scale:
            return biased(scaled(X, factor), bias)
        return scaled(biased(X, bias), factor)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        attrs = {"scale": self.scale, "bias": 0.0, "bias_after_scale": True}
        back = gradient_op("scale", op, grad, attrs)
        factors = {slot: names for slot, names in op.inputs.items() if slot == "ScaleTensor"}
        return [OpDesc("scale", back.inputs | factors, back.outputs, attrs)]


def scaled(X: Value, factor: Value) -> Value:
    """Return X times a factor; X itself if the factor is 1."""
    return X if isinstance(factor, int) and factor == 1 else X * factor


def biased(X: Value, bias: float) -> Value:
    """Return X plus a bias; X itself if the bias is 0."""
    return X if bias == 0 else X + bias


def gradient_op(
    kind: str, op: OpDesc, grad: Callable[[str], str], attrs: Mapping[str, Any], index: int = 0
) -> OpDesc:
    """Return a unary op that computes the gradient of `X[index]` from the gradient of Out."""
    inputs, outputs = grad(op.outputs["Out"][0]), grad(op.inputs["X"][index])
    return OpDesc(kind, {"X": [inputs]}, {"Out": [outputs]}, attrs)


class Sum(Pointwise, op="sum"):
    """Out = the sum of all tensors in X, which have equal shapes."""

    X = reads(many=True)
    Out = writes()

    def array_variant(self) -> str:
        """Tensor arrays are added elementwise by `sum_arrays`."""
        return "sum_arrays"

    def sparse_variant(self) -> str:
        """Sparse terms only: their rows are concatenated."""
        return "sum_rows"

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of any term; raise ShapeError if they differ."""
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
    """Out = X + step, for a tensor of one element; Out usually is X (in place)."""

    X = reads()
    Out = writes(inplace="X")
    step = attr(1.0)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raise ShapeError if it has more than one element."""
        if differ(types["X"].numel, 1):
            raise ShapeError(f"increment: X is {types['X']}, expected one element")
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value) -> Value:
        return X + int_if_integral(self.step)

    def undo(self, op: OpDesc) -> OpDesc:
        """Return the op that decrements again, for gradients of ops that precede this one."""
        names = {"X": op.outputs["Out"]}, {"Out": op.inputs["X"]}
        return OpDesc("increment", *names, {"step": -self.step}, op.source)
