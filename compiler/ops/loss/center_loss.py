"""The distance of features to the centre of their class."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.duplicate_rows import merged
from compiler.ops.shared_kernels import copy, inside, number
from compiler.ops.type_checks import (
    differ,
    require_dtype,
    require_same_dtype,
    require_same_shape,
    require_scalar,
    shown,
)


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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, Label, Centers = s.X, s.Label, s.Centers
        require_dtype(self.kind, "Label", Label, DType.INT64)
        require_scalar(self.kind, CenterUpdateRate=s.CenterUpdateRate)
        require_same_dtype(self.kind, X=X, Centers=Centers)
        odd = (X.rank, Centers.rank) != (2, 2) or differ(X.shape[1], Centers.shape[1])
        if odd or differ(X.shape[0], Label.numel):
            shapes = shown(X=X, Label=Label, Centers=Centers)
            raise ShapeError(f"{self.kind}: {shapes}, expected rows, a label per row, and centers")
        column = X.with_shape((X.shape[0], 1))
        return {"CentersOut": Centers, "SampleCenterDiff": X, "Loss": column}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        d_Loss = s.d_Loss
        require_same_shape(f"{self.kind}_grad", X=s.X, SampleCenterDiff=s.SampleCenterDiff)
        if differ(d_Loss.numel, s.X.shape[0]):
            raise ShapeError(f"{self.kind}_grad: Loss@GRAD is {d_Loss}, expected a row for each")
        return {"X": s.SampleCenterDiff}

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

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Label, Centers = s.Label, s.Centers
        k.line(f"{k.function(expect_centers)}({Label}, {Centers.shape[0]})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Centers = s.X, s.Centers
        CentersOut = s.get("CentersOut")
        (rows, width), classes = X.shape, Centers.shape[0]
        difference = s.get("SampleCenterDiff") or k.scratch(X.shape, X.type.dtype)
        labels = s.Label.reshaped((rows,))
        i, j = k.grid(rows, width)
        in_range, nan = inside(k, labels[i], classes), float("nan")
        k.store(difference, (i, j), X[i, j] - Centers.at(labels[i], j, where=in_range, other=nan))
        if (Loss := s.get("Loss")) is not None:
            (i,) = k.grid(rows)
            r = k.loop(width)
            k.store(Loss, (i, 0), k.sum(difference[i, r] * difference[i, r], r) * 0.5)
        if CentersOut is None:
            return
        copy(k, Centers, CentersOut)
        if not self.need_update:
            return
        groups = merged(k, labels, classes)
        n, j = k.grid(rows, width)
        leads, count = groups.length[n] > 0, k.astype(groups.length[n], X.type.dtype) + 1.0
        moved = groups.sums(k, difference, n, j) * number(k, s.CenterUpdateRate) / count
        center = CentersOut.at(labels[n], j, where=leads, other=0)
        k.store(CentersOut, (labels[n], j), center + moved, leads)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, j = k.grid(*s.d_X.shape)
        k.store(s.d_X, (i, j), s.SampleCenterDiff[i, j] * s.d_Loss[i, 0])
