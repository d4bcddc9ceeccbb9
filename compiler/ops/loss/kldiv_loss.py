"""The Kullback-Leibler divergence between distributions."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.type_checks import (
    require_same_dtype,
    require_same_shape,
)

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

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if self.reduction not in REDUCTIONS:
            raise BadAttribute(
                f"{self.kind}: 'reduction' is {self.reduction!r}, not one of {list(REDUCTIONS)}"
            )
        require_same_shape(self.kind, X=X, Target=s.Target)
        require_same_dtype(self.kind, X=X, Target=s.Target)
        return X if self.reduction == "none" else X.with_shape((1,))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        flat = (X.type.numel,)
        output_index = k.grid(*(flat if self.reduction == "none" else (1,)))
        i = output_index[0] if self.reduction == "none" else k.loop(X.type.numel)
        target = s.Target.reshaped(flat)[i]
        log_ratio = k.log(k.where(target > 0, target, 1)) - X.reshaped(flat)[i]
        loss = k.where(target > 0, target * log_ratio, 0)
        if self.reduction != "none":
            loss = k.sum(loss, i) / k.astype(k.size(self.divisor(X.shape)), X.type.dtype)
        k.store(s.Loss.reshaped(flat if self.reduction == "none" else (1,)), output_index, loss)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        flat = (d_X.type.numel,)
        (i,) = k.grid(*flat)
        upstream = (
            s.d_Loss.reshaped(flat)[i] if self.reduction == "none" else s.d_Loss.reshaped((1,))[0]
        )
        share = upstream / k.astype(k.size(self.divisor(d_X.shape)), d_X.type.dtype)
        k.store(d_X.reshaped(flat), (i,), -k.maximum(s.Target.reshaped(flat)[i], 0) * share)
