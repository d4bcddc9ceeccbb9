"""Mean intersection over union of a segmentation."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.metric.precision_recall import checked_classes
from compiler.ops.type_checks import (
    require_dtype,
    require_same_dtype,
    require_same_shape,
    require_scalar,
)


class MeanIou(OpDef, op="mean_iou"):
    """OutMeanIou [1] = the mean over classes of intersection / union of predictions and labels.

    OutCorrect counts correct predictions by class, OutWrong each wrong one for both its classes:
    int32 [num_classes]. InWrongs and InCorrects are added to the counts, InMeanIou to the result.
    Classes that do not occur are omitted. Reference: mean_iou_op.h.
    """

    Predictions = reads()
    Labels = reads()
    InWrongs = reads(many=True, optional=True)
    InCorrects = reads(many=True, optional=True)
    InMeanIou = reads(many=True, optional=True)
    OutMeanIou = writes()
    OutWrong = writes()
    OutCorrect = writes()
    num_classes = required(int)

    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Predictions = s.Predictions
        require_dtype(self.kind, "Predictions", Predictions, DType.INT32, DType.INT64)
        require_same_dtype(self.kind, Predictions=Predictions, Labels=s.Labels)
        require_same_shape(self.kind, Predictions=Predictions, Labels=s.Labels)
        counts = TensorType(DType.INT32, (self.num_classes,))
        for slot, sums in (("InWrongs", s.all("InWrongs")), ("InCorrects", s.all("InCorrects"))):
            for tensor_type in sums or []:
                require_same_shape(self.kind, **{slot: tensor_type, "counts": counts})
        for tensor_type in s.all("InMeanIou"):
            require_scalar(self.kind, InMeanIou=tensor_type)
        mean = TensorType(DType.FP32, (1,))
        return {"OutMeanIou": mean, "OutWrong": counts, "OutCorrect": counts}

    def numpy(
        self,
        Predictions: Array,
        Labels: Array,
        InWrongs: list[Array] | None,
        InCorrects: list[Array] | None,
        InMeanIou: list[Array] | None,
    ) -> dict[str, Array]:
        count = self.num_classes
        claimed = checked_classes(Predictions, "Predictions", count)
        true = checked_classes(Labels, "Labels", count)
        right = claimed == true
        correct = np.bincount(true[right], minlength=count)
        wrong = np.bincount(np.concatenate([true[~right], claimed[~right]]), minlength=count)
        wrong = (wrong + sum(InWrongs or [])).astype(np.int32)
        correct = (correct + sum(InCorrects or [])).astype(np.int32)
        every = wrong + correct
        mean = (correct / np.maximum(every, 1)).sum() / max(np.count_nonzero(every), 1)
        total = np.array([mean], np.float32) + sum(InMeanIou or [])
        return {"OutMeanIou": total, "OutWrong": wrong, "OutCorrect": correct}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Predictions, Labels = s.Predictions, s.Labels
        check = k.function(checked_classes)
        k.line(f"{check}({Predictions}, 'Predictions', {self.num_classes})")
        k.line(f"{check}({Labels}, 'Labels', {self.num_classes})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        OutMeanIou = s.get("OutMeanIou")
        classes, count = self.num_classes, s.Labels.type.numel
        wrong, correct = (
            output or k.scratch((classes,), DType.INT32)
            for output in (s.get("OutWrong"), s.get("OutCorrect"))
        )
        (c,) = k.grid(classes)
        r = k.loop(count)
        predicted, true = (
            k.equal(operand.reshaped((count,))[r], c) for operand in (s.Predictions, s.Labels)
        )
        for out, flags, before in (
            (wrong, k.logical_xor(predicted, true), s.all("InWrongs")),
            (correct, predicted & true, s.all("InCorrects")),
        ):
            total = k.sum(k.astype(flags, DType.INT32), r)
            for operand in before or []:
                total = total + operand[c]
            k.store(out, (c,), total)
        if OutMeanIou is None:
            return
        (one,) = k.grid(1)
        r = k.loop(classes)
        right, every = correct[r], correct[r] + wrong[r]
        share = k.astype(right, DType.FP64) / k.astype(k.maximum(every, 1), DType.FP64)
        there = k.sum(k.astype(k.not_equal(every, 0), DType.INT32), r)
        mean = k.sum(share, r) / k.astype(k.maximum(there, 1), DType.FP64)
        for operand in s.all("InMeanIou"):
            mean = mean + operand[0]
        k.store(OutMeanIou, (one,), mean)
