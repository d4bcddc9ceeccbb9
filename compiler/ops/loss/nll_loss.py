"""The negative log-likelihood loss of class labels."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss.cross_entropy import check_labels, known_labels
from compiler.ops.loss.cross_entropy_kernels import known_label, label_loss
from compiler.ops.shared_kernels import fill
from compiler.ops.type_checks import differ, numeric, require_dtype, require_same_dtype, shown


def label_weights(
    labels: Array, weights: Array | None, classes: int, ignore: int
) -> tuple[Array, Array]:
    """Return labels and their weights, both 0 if ignored; raise ValueError if out of range."""
    safe_labels, counted = known_labels(labels, classes, ignore)
    return safe_labels, counted * (np.float32(1) if weights is None else weights[safe_labels])


class NllLoss(OpDef, op="nll_loss"):
    """Out = -X[Label] * Weight[Label] for log-probabilities X, with classes on axis 1.

    X is [N, classes] or [N, classes, H, W], Label the same without classes. `reduction` "none"
    keeps every label; "sum" and "mean", which divides by Total_weight, the sum of weights, return
    [1]. Labels equal to `ignore_index` have weight 0. Reference: nll_loss_op.h.
    """

    X = reads()
    Label = reads(no_grad=True)
    Weight = reads(optional=True, no_grad=True)
    Out = writes(shares_lod=False)
    Total_weight = writes()
    ignore_index = attr(-100)
    reduction = attr("mean")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, Label = s.X, s.Label
        require_dtype(self.kind, "Label", Label, DType.INT64)
        if self.reduction not in ("none", "mean", "sum"):
            raise BadAttribute(
                f"{self.kind}: 'reduction' is {self.reduction!r}, not 'none', 'mean' or 'sum'"
            )
        labels = (*X.shape[:1], *X.shape[2:])
        if X.rank not in (2, 4) or differ(product(labels), Label.numel):
            raise ShapeError(f"{self.kind}: {shown(X=X, Label=Label)}, expected a label per row")
        if (Weight := s.get("Weight")) is not None:
            require_same_dtype(self.kind, X=X, Weight=Weight)
        out = labels if self.reduction == "none" else (1,)
        return {"Out": X.with_shape(out), "Total_weight": X.with_shape((1,))}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array, Label: Array, Weight: Array | None) -> dict[str, Array]:
        labels = Label.reshape(X.shape[:1] + X.shape[2:])
        safe_labels, weights = label_weights(labels, Weight, X.shape[1], self.ignore_index)
        picked = np.take_along_axis(X, np.expand_dims(safe_labels, 1), 1)[:, 0]
        loss, total = -picked * weights, weights.sum().reshape(1)
        if self.reduction != "none":
            loss = loss.sum().reshape(1)
        if self.reduction == "mean" and total[0] != 0:
            loss = loss / total
        total_weight = np.zeros_like(total) if self.reduction == "none" else total
        return {"Out": loss.astype(X.dtype), "Total_weight": total_weight.astype(X.dtype)}

    def grad(
        self, X: Shape, Label: Array, Weight: Array | None, Total_weight: Array, d_Out: Array
    ) -> dict[str, Array]:
        shape = numeric(X)
        labels = Label.reshape(shape[:1] + shape[2:])
        safe_labels, weights = label_weights(labels, Weight, shape[1], self.ignore_index)
        over = Total_weight[0] if self.reduction == "mean" and Total_weight[0] != 0 else 1
        d_X = np.zeros(shape, d_Out.dtype)
        share = -weights * d_Out / over
        np.put_along_axis(d_X, np.expand_dims(safe_labels, 1), np.expand_dims(share, 1), 1)
        return {"X": d_X}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check_labels(k, s.Label, s.X.shape[1], self.ignore_index)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Total_weight = s.get("Total_weight")
        table = (X.shape[0], X.shape[1], product(X.shape[2:]))
        is_elementwise = self.reduction == "none"
        at = k.grid(*((table[0], table[2]) if is_elementwise else (1,)))
        loop = None if is_elementwise else k.loop(product((table[0], table[2])))
        n, position = at if loop is None else k.unravel(loop, (table[0], table[2]))
        label = s.Label.reshaped((table[0], table[2]))[n, position]
        weight, is_valid = self.weight(k, label, s.get("Weight"), table[1], X.type.dtype)
        lost = X.reshaped(table).at(n, label, position, where=is_valid, other=0)
        lost = label_loss(k, -lost * weight, label, is_valid, self.ignore_index)
        total: Number = 0.0
        if loop is not None:
            lost, total = k.sum(lost, loop), k.sum(weight, loop)
            if self.reduction == "mean":
                lost = lost / k.where(k.not_equal(total, 0), total, 1)
        if (Out := s.get("Out")) is not None:
            k.store(Out.reshaped((table[0], table[2]) if is_elementwise else (1,)), at, lost)
        if Total_weight is not None and not is_elementwise:
            k.store(Total_weight, at, total)
        elif Total_weight is not None:
            fill(k, Total_weight, 0)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        table = (d_X.shape[0], d_X.shape[1], product(d_X.shape[2:]))
        n, c, position = k.grid(*table)
        label = s.Label.reshaped((table[0], table[2]))[n, position]
        weight, is_valid = self.weight(k, label, s.get("Weight"), table[1], d_X.type.dtype)
        if self.reduction == "none":
            share = s.d_Out.reshaped((table[0], table[2]))[n, position] * weight
        else:
            share = s.d_Out.reshaped((1,))[0] * weight
        if self.reduction == "mean":
            share = share / k.where(k.not_equal(s.Total_weight[0], 0), s.Total_weight[0], 1)
        own = k.equal(label, c) & is_valid
        k.store(d_X.reshaped(table), (n, c, position), k.where(own, -share, 0))

    def weight(
        self,
        k: KernelBuilder,
        label: Number,
        Weight: DeviceOperand | None,
        classes: Size,
        dtype: DType,
    ) -> tuple[Number, Number]:
        """Return the weight of a label, and whether it is valid and not ignored."""
        is_valid = known_label(k, label, classes, self.ignore_index)
        if Weight is None:
            return k.astype(is_valid, dtype), is_valid
        return Weight.at(label, where=is_valid, other=0), is_valid
