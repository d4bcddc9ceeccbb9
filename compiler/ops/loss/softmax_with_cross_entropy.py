"""Cross entropy of logits: softmax and loss in one op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss import cross_entropy_kernels as cross_entropy_kernels
from compiler.ops.loss.cross_entropy import check_labels, known_labels, lower_labels
from compiler.ops.math.axes import normalize_axis
from compiler.ops.type_checks import (
    require_dtype,
    require_same_dtype,
    require_same_shape,
    shapes_differ,
)

NO_CLASS = -1


class SoftmaxWithCrossEntropy(OpDef, op="softmax_with_cross_entropy"):
    """Softmax = softmax(Logits) along `axis`; Loss = -log(Softmax[Label]), of size 1 there.

    With `soft_label`, Label holds probabilities in the shape of Logits and Loss is -sum(Label *
    log(Softmax)). Rows with label `ignore_index` have loss 0; their gradient is 0 only if
    `ignore_index` is not a class, since the reference's CPU gradient kernel does not check it. As
    in `softmax`, logits are clamped to 64 below the maximum. `use_softmax` (Paddle 2) must be True.
    Reference: softmax_with_cross_entropy_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"Logits": "Softmax"}

    Logits = reads()
    Label = reads(no_grad=True)
    Softmax = writes()
    Loss = writes()
    soft_label = attr(False)
    numeric_stable_mode = attr(True)
    ignore_index = attr(-100)
    axis = attr(-1)
    use_softmax = attr(True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Logits, Label = s.Logits, s.Label
        if not self.use_softmax:
            raise BadAttribute(
                f"{self.kind}: 'use_softmax' is False", hint="cross_entropy takes probabilities"
            )
        axis = normalize_axis(self.kind, self.axis, Logits.rank)
        loss = Logits.with_shape((*Logits.shape[:axis], 1, *Logits.shape[axis + 1 :]))
        if self.soft_label:
            require_same_dtype(self.kind, Logits=Logits, Label=Label)
            require_same_shape(self.kind, Logits=Logits, Label=Label)
        else:
            require_dtype(self.kind, "Label", Label, DType.INT64)
            if shapes_differ(loss, Label):
                raise ShapeError(
                    f"{self.kind}: Logits are {Logits} and Label is {Label}, expected "
                    f"{Label.with_shape(loss.shape)}, a class for each row",
                    hint="probabilities of classes are labels with soft_label=True",
                )
        return {"Softmax": Logits, "Loss": loss}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Softmax = s.Softmax
        if self.soft_label:
            require_same_dtype(self.kind + "_grad", Label=s.Label, Softmax=Softmax)
        normalize_axis(self.kind, self.axis, Softmax.rank)
        return {"Logits": Softmax}

    def table(self, Logits: Shape) -> Shape:
        """Return (rows, classes), with the inner size appended if `axis` is not the last."""
        axis = self.axis % len(Logits)
        rows, inside = product(Logits[:axis]), product(Logits[axis + 1 :])
        return (rows, Logits[axis]) if inside == 1 else (rows, Logits[axis], inside)

    def numpy(self, Logits: Array, Label: Array) -> dict[str, Array]:
        shifted = np.maximum(Logits - Logits.max(self.axis, keepdims=True), -64.0)
        powers = np.exp(shifted)
        total = powers.sum(self.axis, keepdims=True)
        surprise = np.log(total) - shifted
        if self.soft_label:
            loss = (Label * surprise).sum(self.axis, keepdims=True)
        else:
            safe_labels, counted = known_labels(Label, Logits.shape[self.axis], self.ignore_index)
            loss = np.take_along_axis(surprise, safe_labels, self.axis) * counted
        return {"Softmax": powers / total, "Loss": loss}

    def grad(self, Label: Array, Softmax: Array, d_Loss: Array) -> dict[str, Array]:
        if self.soft_label:
            return {"Logits": (Softmax - Label) * d_Loss}
        classes = Softmax.shape[self.axis]
        ignore = NO_CLASS if 0 <= self.ignore_index < classes else self.ignore_index
        safe_labels, counted = known_labels(Label, classes, ignore)
        share = d_Loss * counted
        d_Logits = Softmax * share
        at_label = np.take_along_axis(d_Logits, safe_labels, self.axis) - share
        np.put_along_axis(d_Logits, safe_labels, at_label, self.axis)
        return {"Logits": d_Logits}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Logits, Label = s.Logits, s.Label
        table, dtype = self.table(Logits.shape), Logits.type.dtype
        column = (table[0], 1, *table[2:])
        softmax = s.get("Softmax") or k.scratch(table, dtype)
        shares = softmax.view(table)
        shifted = k.scratch(table, dtype).view(table) if self.soft_label else shares
        total, loss = k.scratch(column, dtype), s.get("Loss") or k.scratch(column, dtype)
        logits = Logits.view(table)
        k.line(f"np.maximum.reduce({logits}, axis=1, keepdims=True, out={total})")
        k.line(f"np.subtract({logits}, {total}, out={shifted})")
        k.line(f"np.maximum({shifted}, -64.0, out={shifted})")
        if self.soft_label:
            self.lower_shares(k, shifted, shares, total)
            k.line(f"np.subtract({total}, {shifted}, out={shifted})")
            k.line(f"np.multiply({shifted}, {Label.view(table)}, out={shifted})")
            k.line(f"np.add.reduce({shifted}, axis=1, keepdims=True, out={loss.view(column)})")
        else:
            index, counted = lower_labels(k, Label, table, self.ignore_index)
            flat, picked = softmax.view((Logits.type.numel,)), loss.view(index.shape)
            k.line(f"{flat}.take({index}, out={picked}, mode='clip')")
            self.lower_shares(k, shifted, shares, total)
            k.line(f"np.subtract({total.view(index.shape)}, {picked}, out={picked})")
            k.line(f"np.multiply({picked}, {counted}, out={picked})")

    def lower_shares(self, k: SourceBuilder, shifted: str, shares: str, total: Operand) -> None:
        """Set shares to the softmax of shifted logits, total to their log-sum-exp."""
        k.line(f"np.exp({shifted}, out={shares})")
        k.line(f"np.add.reduce({shares}, axis=1, keepdims=True, out={total})")
        k.line(f"np.divide({shares}, {total}, out={shares})")
        k.line(f"np.log({total}, out={total})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Label, Softmax, d_Loss, d_Logits = s.Label, s.Softmax, s.d_Loss, s.d_Logits
        if self.soft_label:
            k.line(f"np.subtract({Softmax}, {Label}, out={d_Logits})")
            k.line(f"np.multiply({d_Logits}, {d_Loss}, out={d_Logits})")
            return
        table, ignore = self.table(Softmax.shape), self.ignore_index
        resolved = f"{NO_CLASS} if {ignore} < {table[1]} else {ignore}"
        index, counted = lower_labels(k, Label, table, ignore if ignore < 0 else resolved)
        share = k.scratch(index.shape, d_Loss.type.dtype)
        column = share.view((table[0], 1, *table[2:]))
        flat = d_Logits.view((d_Logits.type.numel,))
        k.line(f"np.multiply({d_Loss.view(index.shape)}, {counted}, out={share})")
        k.line(f"np.multiply({Softmax.view(table)}, {column}, out={d_Logits.view(table)})")
        k.line(f"{flat}[{index}] -= {share}")

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        if not self.soft_label:
            check_labels(
                k, s.Label, s.Logits.shape[self.axis % s.Logits.type.rank], self.ignore_index
            )

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        logits = s.Logits.reshaped((*self.table(s.Logits.shape), 1)[:3])
        ignore = None if self.soft_label else self.ignore_index
        cross_entropy_kernels.softmax_loss(
            k, logits, s.Label, ignore, s.get("Softmax"), s.get("Loss")
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        table = (*self.table(s.Softmax.shape), 1)[:3]
        beyond = not self.ignore_index >= 0 or self.ignores_beyond(table[1])
        ignore = None if self.soft_label else self.ignore_index if beyond else NO_CLASS
        cross_entropy_kernels.softmax_loss_gradient(
            k, s.Softmax.reshaped(table), s.Label, ignore, s.d_Loss, s.d_Logits
        )

    def ignores_beyond(self, classes: Size) -> bool:
        """Return whether `ignore_index` is known not to be a class."""
        return isinstance(classes, int) and self.ignore_index >= classes
