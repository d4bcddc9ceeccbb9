"""Losses by distance between tensors or distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss.binary import SameTypePointwise
from compiler.ops.shared_kernels import copy, inside, number
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    require_scalar,
    shown,
)


class HuberLoss(SameTypePointwise, op="huber_loss"):
    """Out = r² / 2 if |r| <= delta, else delta * (|r| - delta / 2), with Residual r = Y - X.

    Reference: huber_loss_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Residual", "Y": "Residual"}

    X = reads()
    Y = reads()
    Residual = writes(shares_lod=False)
    Out = writes()
    delta = required(float)

    def compute(self, xp: Xp, X: Value, Y: Value) -> dict[str, Value]:
        residual = Y - X
        size = xp.abs(residual)
        far = self.delta * (size - 0.5 * self.delta)
        near = 0.5 * residual * residual
        return {"Residual": residual, "Out": xp.where(size <= self.delta, near, far)}

    def grad(self, xp: Xp, Residual: Value, d_Out: Value) -> Value:
        pull = d_Out * xp.minimum(xp.maximum(Residual, -self.delta), self.delta)
        return {"X": -pull, "Y": pull}


def small_differences(difference: Array, sigma: float) -> tuple[Array, Array]:
    """Return the mask of small differences, and sigma² in their dtype."""
    square = np.asarray(sigma * sigma, difference.dtype)
    return np.abs(difference) < 1.0 / square, square


class SmoothL1Loss(OpDef, op="smooth_l1_loss"):
    """Out = the smooth L1 loss of each row, with Diff d = (X - Y) * InsideWeight.

    Each element contributes (sigma * d)² / 2 if |d| < 1 / sigma², else |d| - 1 / (2 sigma²), times
    OutsideWeight. All inputs are [N, ...], Out is [N, 1]; the weights must be given both or not at
    all. Reference: smooth_l1_loss_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Diff", "Y": "Diff"}

    X = reads()
    Y = reads()
    InsideWeight = reads(optional=True, no_grad=True)
    OutsideWeight = reads(optional=True, no_grad=True)
    Diff = writes()
    Out = writes()
    sigma = attr(1.0)

    def infer(
        self,
        X: TensorType,
        Y: TensorType,
        InsideWeight: TensorType | None,
        OutsideWeight: TensorType | None,
    ) -> dict[str, TensorType]:
        weights = {"InsideWeight": InsideWeight, "OutsideWeight": OutsideWeight}
        present = {slot: type for slot, type in weights.items() if type is not None}
        if X.rank < 2:
            raise ShapeError(f"{self.kind}: X is {X}, expected at least 2 axes")
        if len(present) == 1:
            raise ShapeError(f"{self.kind}: {shown(**present)} needs both weights")
        require_same_shape(self.kind, X=X, Y=Y, **present)
        require_same_dtype(self.kind, X=X, Y=Y, **present)
        return {"Diff": X, "Out": X.with_shape((X.shape[0], 1))}

    def infer_grad(self, Diff: TensorType) -> dict[str, TensorType]:
        return {"X": Diff, "Y": Diff}

    def numpy(
        self, X: Array, Y: Array, InsideWeight: Array | None, OutsideWeight: Array | None
    ) -> dict[str, Array]:
        difference = X - Y if InsideWeight is None else (X - Y) * InsideWeight
        small, square = small_differences(difference, self.sigma)
        far = np.abs(difference) - 0.5 / square
        loss = np.where(small, 0.5 * square * difference * difference, far)
        weighted = loss if OutsideWeight is None else loss * OutsideWeight
        return {"Diff": difference, "Out": weighted.reshape(len(X), -1).sum(1, keepdims=True)}

    def grad(
        self,
        Diff: Array,
        InsideWeight: Array | None,
        OutsideWeight: Array | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        small, square = small_differences(Diff, self.sigma)
        slope = np.where(small, square * Diff, np.sign(Diff))
        for weight in (InsideWeight, OutsideWeight):
            slope = slope if weight is None else slope * weight
        pull = slope * d_Out.reshape(-1, *[1] * (Diff.ndim - 1))
        return {"X": pull, "Y": -pull}

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Y: DeviceOperand,
        InsideWeight: DeviceOperand | None,
        OutsideWeight: DeviceOperand | None,
        Diff: DeviceOperand | None,
        Out: DeviceOperand | None,
    ) -> None:
        table = (X.shape[0], product(X.shape[1:]))
        (i,) = k.grid(table[0])
        r, square = k.loop(table[1]), self.sigma * self.sigma
        difference = X.reshaped(table)[i, r] - Y.reshaped(table)[i, r]
        if InsideWeight is not None:
            difference = difference * InsideWeight.reshaped(table)[i, r]
        size = k.absolute(difference)
        loss = k.where(
            size < 1.0 / square, 0.5 * square * difference * difference, size - 0.5 / square
        )
        if OutsideWeight is not None:
            loss = loss * OutsideWeight.reshaped(table)[i, r]
        if Diff is not None:
            k.store(Diff.reshaped(table), (i, r), difference)
        if Out is not None:
            k.store(Out, (i, 0), k.sum(loss, r))

    def kernel_grad(
        self,
        k: KernelBuilder,
        Diff: DeviceOperand,
        InsideWeight: DeviceOperand | None,
        OutsideWeight: DeviceOperand | None,
        d_Out: DeviceOperand,
        d_X: DeviceOperand | None,
        d_Y: DeviceOperand | None,
    ) -> None:
        indices, square = k.grid(*Diff.shape), self.sigma * self.sigma
        difference = Diff[indices]
        slope = k.where(
            k.absolute(difference) < 1.0 / square, square * difference, k.sign(difference)
        )
        for weight in (InsideWeight, OutsideWeight):
            slope = slope if weight is None else slope * weight[indices]
        pull = slope * d_Out[indices[0], 0]
        for result, value in ((d_X, pull), (d_Y, -pull)):
            if result is not None:
                k.store(result, indices, value)


REDUCTIONS = ("none", "batchmean", "mean", "sum")


class KldivLoss(OpDef, op="kldiv_loss"):
    """Loss = the Kullback-Leibler divergence Target * (log(Target) - X), X being log-probabilities.

    0 where Target <= 0. `reduction` "none" keeps every element, the others return [1]: the "sum",
    its "mean" over elements, or over rows ("batchmean"). Reference: kldiv_loss_op.h.
    """

    lod_source = ""

    X = reads()
    Target = reads(no_grad=True)
    Loss = writes()
    reduction = attr("mean")

    def infer(self, X: TensorType, Target: TensorType) -> TensorType:
        if self.reduction not in REDUCTIONS:
            raise BadAttribute(
                f"{self.kind}: 'reduction' is {self.reduction!r}, not one of {list(REDUCTIONS)}"
            )
        require_same_shape(self.kind, X=X, Target=Target)
        require_same_dtype(self.kind, X=X, Target=Target)
        return X if self.reduction == "none" else X.with_shape((1,))

    def infer_grad(self, X: TensorType) -> dict[str, TensorType]:
        return {"X": X}

    def numpy(self, X: Array, Target: Array) -> Array:
        counts = Target > 0
        loss = np.where(counts, Target * (np.log(np.where(counts, Target, 1)) - X), 0)
        if self.reduction == "none":
            return loss.astype(X.dtype)
        over = {"sum": 1, "mean": X.size, "batchmean": len(X)}[self.reduction]
        return (loss.sum(keepdims=True).reshape(1) / over).astype(X.dtype)

    def grad(self, X: Shape, Target: Array, d_Loss: Array) -> dict[str, Array]:
        over = {"mean": Target.size, "batchmean": len(Target)}.get(self.reduction, 1)
        return {"X": (np.maximum(Target, 0) * d_Loss / -over).astype(Target.dtype)}

    def divisor(self, X: Shape) -> Size:
        """Return the divisor of the reduced sum."""
        return {"mean": product(X), "batchmean": X[0]}.get(self.reduction, 1)

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Target: DeviceOperand, Loss: DeviceOperand
    ) -> None:
        flat = (X.type.numel,)
        output_index = k.grid(*(flat if self.reduction == "none" else (1,)))
        i = output_index[0] if self.reduction == "none" else k.loop(X.type.numel)
        target = Target.reshaped(flat)[i]
        log_ratio = k.log(k.where(target > 0, target, 1)) - X.reshaped(flat)[i]
        loss = k.where(target > 0, target * log_ratio, 0)
        if self.reduction != "none":
            loss = k.sum(loss, i) / k.astype(k.size(self.divisor(X.shape)), X.type.dtype)
        k.store(Loss.reshaped(flat if self.reduction == "none" else (1,)), output_index, loss)

    def kernel_grad(
        self, k: KernelBuilder, Target: DeviceOperand, d_Loss: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        flat = (d_X.type.numel,)
        (i,) = k.grid(*flat)
        upstream = (
            d_Loss.reshaped(flat)[i] if self.reduction == "none" else d_Loss.reshaped((1,))[0]
        )
        share = upstream / k.astype(k.size(self.divisor(d_X.shape)), d_X.type.dtype)
        k.store(d_X.reshaped(flat), (i,), -k.maximum(Target.reshaped(flat)[i], 0) * share)


def expect_centers(labels: Array, count: int) -> None:
    """Raise ValueError for a label without a center."""
    wrong = (labels < 0) | (labels >= count)
    if wrong.any():
        raise ValueError(
            f"center_loss: label {labels[wrong][0]} in row {int(wrong.argmax())} is not a "
            f"class: expected 0 to {count - 1}"
        )


class CenterLoss(OpDef, op="center_loss"):
    """Loss = half the squared distance between each row of X and the center of its class.

    X is [N, D], Label has one class per row, Centers is [cluster_num, D]. With `need_update`, each
    center in CentersOut moves by CenterUpdateRate times the sum of its rows' SampleCenterDiff,
    divided by 1 + their number. Reference: center_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Centers = reads(no_grad=True)
    CenterUpdateRate = reads(no_grad=True)
    CentersOut = writes(inplace="Centers")
    SampleCenterDiff = writes(shares_lod=False)
    Loss = writes()
    cluster_num = required(int)
    need_update = required(bool)

    def infer(
        self, X: TensorType, Label: TensorType, Centers: TensorType, CenterUpdateRate: TensorType
    ) -> dict[str, TensorType]:
        require_dtype(self.kind, "Label", Label, DType.INT64)
        require_scalar(self.kind, CenterUpdateRate=CenterUpdateRate)
        require_same_dtype(self.kind, X=X, Centers=Centers)
        odd = (X.rank, Centers.rank) != (2, 2) or differ(X.shape[1], Centers.shape[1])
        if odd or differ(X.shape[0], Label.numel):
            shapes = shown(X=X, Label=Label, Centers=Centers)
            raise ShapeError(f"{self.kind}: {shapes}, expected rows, a label per row, and centers")
        column = X.with_shape((X.shape[0], 1))
        return {"CentersOut": Centers, "SampleCenterDiff": X, "Loss": column}

    def infer_grad(
        self, X: TensorType, SampleCenterDiff: TensorType, d_Loss: TensorType
    ) -> dict[str, TensorType]:
        require_same_shape(f"{self.kind}_grad", X=X, SampleCenterDiff=SampleCenterDiff)
        if differ(d_Loss.numel, X.shape[0]):
            raise ShapeError(f"{self.kind}_grad: Loss@GRAD is {d_Loss}, expected a row for each")
        return {"X": SampleCenterDiff}

    def numpy(
        self, X: Array, Label: Array, Centers: Array, CenterUpdateRate: Array
    ) -> dict[str, Array]:
        labels = Label.reshape(-1)
        expect_centers(labels, len(Centers))
        difference = X - Centers[labels]
        loss = 0.5 * np.square(difference).sum(1, keepdims=True)
        centers = Centers.copy()
        if self.need_update:
            total, count = np.zeros_like(Centers), np.ones((len(Centers), 1), Centers.dtype)
            np.add.at(total, labels, difference)
            np.add.at(count, labels, 1)
            centers += CenterUpdateRate.reshape(1) * total / count
        return {"CentersOut": centers, "SampleCenterDiff": difference, "Loss": loss}

    def grad(self, X: Shape, SampleCenterDiff: Array, d_Loss: Array) -> dict[str, Array]:
        return {"X": SampleCenterDiff * d_Loss}

    def check_values(self, k: SourceBuilder, Label: Operand, Centers: Operand) -> None:
        k.line(f"{k.function(expect_centers)}({Label}, {Centers.shape[0]})")

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Label: DeviceOperand,
        Centers: DeviceOperand,
        CenterUpdateRate: DeviceOperand,
        CentersOut: DeviceOperand | None,
        SampleCenterDiff: DeviceOperand | None,
        Loss: DeviceOperand | None,
    ) -> None:
        (rows, width), classes = X.shape, Centers.shape[0]
        difference = SampleCenterDiff or k.scratch(X.shape, X.type.dtype)
        labels = Label.reshaped((rows,))
        i, j = k.grid(rows, width)
        in_range, nan = inside(k, labels[i], classes), float("nan")
        k.store(difference, (i, j), X[i, j] - Centers.at(labels[i], j, where=in_range, other=nan))
        if Loss is not None:
            (i,) = k.grid(rows)
            r = k.loop(width)
            k.store(Loss, (i, 0), k.sum(difference[i, r] * difference[i, r], r) * 0.5)
        if CentersOut is None:
            return
        if not self.need_update:
            copy(k, Centers, CentersOut)
            return
        c, j = k.grid(classes, width)
        r = k.loop(rows)
        own = k.equal(labels[r], c)
        total = k.sum(difference.at(r, j, where=own, other=0), r)
        count = k.sum(k.astype(own, X.type.dtype), r) + 1.0
        moved = total * number(k, CenterUpdateRate) / count
        k.store(CentersOut, (c, j), Centers[c, j] + moved)

    def kernel_grad(
        self,
        k: KernelBuilder,
        SampleCenterDiff: DeviceOperand,
        d_Loss: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        i, j = k.grid(*d_X.shape)
        k.store(d_X, (i, j), SampleCenterDiff[i, j] * d_Loss[i, 0])
