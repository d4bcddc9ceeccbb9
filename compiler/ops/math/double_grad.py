"""Double-grad ops that are not composed of other ops; see `compiler.ir.autodiff.double_grad`.

Slots are named as in the reference: DDX is the gradient of `X@GRAD`, DOut is `Out@GRAD`; DX as an
output is the gradient of X, as an input `X@GRAD` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Pointwise, Slots, Value, Xp, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_not_broadcast
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.reduce import sum_to
from compiler.ops.shared_kernels import broadcast_at
from compiler.ops.type_checks import numeric, require_same_shape


def pad_rank(small: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Reshape an array to the rank of `shape` by adding axes of size 1, aligned at `axis`."""
    return small.reshape(numeric(padded_shape(small.shape, len(shape), axis)))


def padded_shape(small: Shape, rank: int, axis: int) -> Shape:
    """Return the shape extended to `rank` with sizes of 1, aligned at `axis`."""
    if len(small) == rank:
        return small
    sizes = list(small)
    while sizes and sizes[-1] == 1:
        sizes.pop()
    before = rank - len(sizes) if axis == -1 else axis
    ones = (1,) * (rank - len(sizes))
    return (*ones[:before], *sizes, *ones[before:])


def at_element(small: DeviceOperand, indices: Sequence[Number], axis: int) -> Number:
    """Load an element of an operand that broadcasts with its first axis aligned at `axis`."""
    viewed = small.reshaped(padded_shape(small.shape, len(indices), axis))
    return viewed[broadcast_at(viewed.shape, indices)]


def broadcast_sum(terms: Sequence[Array | None], shape: tuple[int, ...], axis: int) -> Array:
    """Sum the terms that are not None, each broadcast to `shape`."""
    padded = [pad_rank(term, shape, axis) for term in terms if term is not None]
    total = np.zeros(shape, padded[0].dtype)
    for term in padded:
        total += term
    return total


def expect_terms(op: str, Out: TensorType, axis: int, **terms: TensorType | None) -> None:
    """Raise ShapeError unless terms broadcast to Out, with their first axis aligned at `axis`."""
    for slot, term in terms.items():
        if term is None:
            continue
        sizes = padded_shape(term.shape, Out.rank, axis)
        if len(sizes) != Out.rank or any(map(is_not_broadcast, sizes, Out.shape)):
            raise ShapeError(f"{op}: {slot} {term} does not broadcast to {Out} at axis {axis}")


class AddDoubleGrad(OpDef):
    """DDOut = DDX ± DDY, broadcast as in the forward op; either may be missing."""

    DOut = reads(shape_only=True)
    DDX = reads(optional=True)
    DDY = reads(optional=True)
    DDOut = writes()
    axis = attr(-1)

    sign: ClassVar[int] = 1

    def infer(self, s: Slots[TensorType]) -> TensorType:
        expect_terms(self.kind, s.DOut, self.axis, DDX=s.get("DDX"), DDY=s.get("DDY"))
        return s.DOut

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices, total = k.grid(*s.DDOut.shape), None
        for term, sign in ((s.get("DDX"), 1), (s.get("DDY"), self.sign)):
            if term is not None:
                value = at_element(term, indices, self.axis)
                value = value if sign > 0 else -value
                total = value if total is None else total + value
        k.store(s.DDOut, indices, 0.0 if total is None else total)


class ElementwiseAddGradGrad(AddDoubleGrad, op="elementwise_add_grad_grad"):
    """Double grad of `elementwise_add`."""

    def numpy(self, DOut: Shape, DDX: Array | None, DDY: Array | None) -> Array:
        return broadcast_sum((DDX, DDY), cast("tuple[int, ...]", DOut), self.axis)


class ElementwiseSubGradGrad(AddDoubleGrad, op="elementwise_sub_grad_grad"):
    """Double grad of `elementwise_sub`."""

    sign = -1

    def numpy(self, DOut: Shape, DDX: Array | None, DDY: Array | None) -> Array:
        signed = (DDX, None if DDY is None else -DDY)
        return broadcast_sum(signed, cast("tuple[int, ...]", DOut), self.axis)


class ElementwiseDivGradGrad(OpDef, op="elementwise_div_grad_grad"):
    """Double grad of `elementwise_div`, whose X@GRAD = Out@GRAD / Y, Y@GRAD = -Out@GRAD * Out / Y.

    Y has no more axes than X.
    """

    Y = reads()
    Out = reads()
    DOut = reads()
    DDX = reads(optional=True)
    DDY = reads(optional=True)
    DY = writes(optional=True)
    DOutNew = writes(optional=True)
    DDOut = writes(optional=True)
    axis = attr(-1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Y, Out = s.Y, s.Out
        require_same_shape(self.kind, Out=Out, DOut=s.DOut)
        expect_terms(self.kind, Out, self.axis, Y=Y, DDX=s.get("DDX"))
        if (DDY := s.get("DDY")) is not None:
            require_same_shape(self.kind, Y=Y, DDY=DDY)
        return {"DY": Y, "DOutNew": Out, "DDOut": Out}

    def numpy(
        self, Y: Array, Out: Array, DOut: Array, DDX: Array | None, DDY: Array | None
    ) -> dict[str, Array]:
        y = pad_rank(Y, Out.shape, self.axis)
        by_x = DOut / y
        from_x = np.zeros_like(Out) if DDX is None else pad_rank(DDX, Out.shape, self.axis)
        from_y = np.zeros_like(y) if DDY is None else pad_rank(DDY, Out.shape, self.axis)
        upstream = (from_x - Out * from_y) / y
        axes = tuple(i for i, size in enumerate(y.shape) if size == 1 < Out.shape[i])
        by_y = -(by_x * upstream).sum(axis=axes, keepdims=True)
        return {"DY": by_y.reshape(Y.shape), "DOutNew": -(by_x * from_y), "DDOut": upstream}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        DOutNew, DDOut = s.get("DOutNew"), s.get("DDOut")

        def parts(at: tuple[Number, ...]) -> tuple[Number, Number, Number]:
            y = at_element(s.Y, at, self.axis)
            from_x, from_y = (
                0 if t is None else at_element(t, at, self.axis)
                for t in (s.get("DDX"), s.get("DDY"))
            )
            return s.DOut[at] / y, from_y, (from_x - Out[at] * from_y) / y

        if DOutNew is not None or DDOut is not None:
            at = k.grid(*Out.shape)
            by_x, from_y, upstream = parts(at)
            if DOutNew is not None:
                k.store(DOutNew, at, -(by_x * from_y))
            if DDOut is not None:
                k.store(DDOut, at, upstream)
        if (DY := s.get("DY")) is not None:
            viewed = DY.reshaped(padded_shape(DY.shape, Out.type.rank, self.axis))
            sum_to(k, Out.shape, viewed, lambda at: -(parts(at)[0] * parts(at)[2]))


class SquareGradGrad(Pointwise, op="square_grad_grad"):
    """Double grad of `square`, with respect to X and Out@GRAD of X@GRAD = 2 * X * Out@GRAD."""

    X = reads()
    DOut = reads()
    DDX = reads()
    DX = writes(optional=True)
    DDOut = writes(optional=True)

    def compute(self, xp: Xp, X: Value, DOut: Value, DDX: Value) -> Value:
        return {"DX": DOut * DDX * 2.0, "DDOut": X * DDX * 2.0}


class EluGradGrad(Pointwise, op="elu_grad_grad"):
    """Double grad of `elu`, whose X@GRAD = Out@GRAD * (1 if X > 0, else alpha * e ** X)."""

    X = reads()
    DOut = reads()
    DDX = reads()
    DX = writes(optional=True)
    DDOut = writes(optional=True)
    alpha = attr(1.0)

    def compute(self, xp: Xp, X: Value, DOut: Value, DDX: Value) -> Value:
        slope = xp.exp(xp.minimum(X, 0.0)) * self.alpha
        bent = DDX * slope * (X <= 0.0)
        return {"DX": DOut * bent, "DDOut": bent + DDX * (X > 0.0)}


class SqrtGradGrad(Pointwise, op="sqrt_grad_grad"):
    """Double grad of `sqrt`, with respect to Out and Out@GRAD of X@GRAD = Out@GRAD / 2 / Out."""

    Out = reads()
    DX = reads()
    DDX = reads()
    DOut = writes(optional=True)
    DDOut = writes(optional=True)

    def compute(self, xp: Xp, Out: Value, DX: Value, DDX: Value) -> Value:
        share = DDX / Out
        return {"DOut": -(DX * share), "DDOut": share * 0.5}


class OutputDoubleGrad(Pointwise):
    """Double grad of an op whose derivative is a function of its output."""

    Out = reads()
    DOut = reads()
    DDX = reads()
    DOutNew = writes(optional=True)
    DDOut = writes(optional=True)


class TanhGradGrad(OutputDoubleGrad, op="tanh_grad_grad"):
    """Double grad of `tanh`, whose X@GRAD = Out@GRAD * (1 - Out ** 2)."""

    def compute(self, xp: Xp, Out: Value, DOut: Value, DDX: Value) -> Value:
        return {"DOutNew": Out * DOut * DDX * -2.0, "DDOut": DDX * (1.0 - Out * Out)}


class SigmoidGradGrad(OutputDoubleGrad, op="sigmoid_grad_grad"):
    """Double grad of `sigmoid`, whose X@GRAD = Out@GRAD * Out * (1 - Out)."""

    def compute(self, xp: Xp, Out: Value, DOut: Value, DDX: Value) -> Value:
        return {"DOutNew": DOut * DDX * (1.0 - Out * 2.0), "DDOut": DDX * Out * (1.0 - Out)}


class ExpGradGrad(OutputDoubleGrad, op="exp_grad_grad"):
    """Double grad of `exp`, whose X@GRAD = Out@GRAD * Out."""

    def compute(self, xp: Xp, Out: Value, DOut: Value, DDX: Value) -> Value:
        return {"DOutNew": DOut * DDX, "DDOut": DDX * Out}


class ReciprocalGradGrad(OutputDoubleGrad, op="reciprocal_grad_grad"):
    """Double grad of `reciprocal`, whose X@GRAD = -Out@GRAD * Out ** 2."""

    def compute(self, xp: Xp, Out: Value, DOut: Value, DDX: Value) -> Value:
        return {"DOutNew": Out * DOut * DDX * -2.0, "DDOut": -(DDX * Out * Out)}


class LogGradGrad(Pointwise, op="log_grad_grad"):
    """Double grad of `log`, with respect to X and Out@GRAD of X@GRAD = Out@GRAD / X."""

    X = reads()
    DOut = reads()
    DDX = reads()
    DX = writes(optional=True)
    DDOut = writes(optional=True)

    def compute(self, xp: Xp, X: Value, DOut: Value, DDX: Value) -> Value:
        share = DDX / X
        return {"DX": -(DOut * share / X), "DDOut": share}
