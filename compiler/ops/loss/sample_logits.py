"""`sample_logits`: the true classes of each row, and samples shared by the batch."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss.nce import row_labels
from compiler.ops.loss.samplers import LOG_UNIFORM, class_chances, draw_unique
from compiler.ops.math.axes import check_indices
from compiler.ops.shared_kernels import copy, inside
from compiler.ops.type_checks import differ, numeric, require_dtype, require_same_shape, shown

HIT = 1e20
"""Amount subtracted from the logit of a sampled class that is also a true class."""


class SampleLogits(OpDef, op="sample_logits"):
    """SampledLogits = Logits at Samples, minus the logarithm of their Probabilities.

    Samples [rows, trues + num_samples] are the true classes of each row and `num_samples` others,
    the same for all rows, log-uniform and always distinct, whatever `uniq` is. Probabilities are
    the probabilities of being among so many samples. `use_customized_samples` takes both from
    inputs, and `remove_accidental_hits` excludes samples that are true classes. SampledLabels are
    the indices of the true classes. LogitsDim and LabelsDim pass shapes and have no data.
    Reference: sample_logits_op.h.
    """

    is_random = True

    Logits = reads()
    Labels = reads(no_grad=True)
    CustomizedSamples = reads(optional=True, no_grad=True)
    CustomizedProbabilities = reads(optional=True, no_grad=True)
    Samples = writes(inplace="CustomizedSamples")
    Probabilities = writes(inplace="CustomizedProbabilities")
    LogitsDim = writes()
    LabelsDim = writes()
    SampledLogits = writes()
    SampledLabels = writes()
    use_customized_samples = attr(False)
    uniq = attr(True)
    remove_accidental_hits = attr(True)
    num_samples = required(int)
    seed = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Logits, Labels = s.Logits, s.Labels
        CustomizedSamples = s.get("CustomizedSamples")
        CustomizedProbabilities = s.get("CustomizedProbabilities")
        require_dtype(self.kind, "Labels", Labels, DType.INT64)
        if (Logits.rank, Labels.rank) != (2, 2) or differ(Logits.shape[0], Labels.shape[0]):
            actual = shown(Logits=Logits, Labels=Labels)
            raise ShapeError(
                f"{self.kind}: {actual}, expected [rows, classes] and true classes per row"
            )
        classes = Logits.shape[1]
        if isinstance(classes, int) and self.num_samples > classes:
            raise BadAttribute(
                f"{self.kind}: 'num_samples' is {self.num_samples}, expected at most {classes}"
            )
        drawn = (Logits.shape[0], Labels.shape[1] + self.num_samples)
        missing = CustomizedSamples is None or CustomizedProbabilities is None
        if self.use_customized_samples and missing:
            raise ShapeError(f"{self.kind}: CustomizedSamples and their probabilities are required")
        if CustomizedSamples is not None and CustomizedProbabilities is not None:
            chances = CustomizedProbabilities
            actual = Logits.with_shape(drawn)
            require_same_shape(self.kind, drawn=actual, Samples=CustomizedSamples, Chances=chances)
        return {
            "Samples": TensorType(DType.INT64, drawn),
            "Probabilities": Logits.with_shape(drawn),
            "LogitsDim": Logits.with_shape((*Logits.shape, 0)),
            "LabelsDim": Logits.with_shape((*Labels.shape, 0)),
            "SampledLogits": Logits.with_shape(drawn),
            "SampledLabels": Labels,
        }

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Samples, LogitsDim = s.Samples, s.LogitsDim
        samples = {"Samples": Samples, "SampledLogits@GRAD": s.d_SampledLogits}
        require_same_shape(f"{self.kind}_grad", **samples)
        if LogitsDim.rank != 3 or Samples.rank != 2 or differ(Samples.shape[0], LogitsDim.shape[0]):
            shapes = shown(LogitsDim=LogitsDim, **samples)
            raise ShapeError(f"{self.kind}_grad: {shapes}, expected rows of samples for each row")
        return {"Logits": LogitsDim.with_shape(LogitsDim.shape[:-1])}

    def numpy(
        self,
        Logits: Array,
        Labels: Array,
        CustomizedSamples: Array | None,
        CustomizedProbabilities: Array | None,
    ) -> dict[str, Array]:
        rows, classes = Logits.shape
        trues = row_labels(Labels, classes)
        if CustomizedSamples is not None and CustomizedProbabilities is not None:
            samples, chances = CustomizedSamples, CustomizedProbabilities
            check_indices(samples, classes, "sample_logits")
        else:
            drawn, tries = draw_unique(self.num_samples, classes, self.seed)
            drawn = np.broadcast_to(drawn, (rows, self.num_samples))
            samples = np.concatenate([trues, drawn], axis=1)
            once = class_chances(samples, LOG_UNIFORM, classes + 1, None)
            chances = -np.expm1(tries * np.log1p(-once)).astype(Logits.dtype)
        sampled = np.take_along_axis(Logits, samples, 1) - np.log(chances)
        if self.remove_accidental_hits:
            hits = (samples[:, :, None] == trues[:, None, :]).any(2)
            hits[:, : trues.shape[1]] = False
            sampled = sampled - np.where(hits, HIT, 0)
        indices: Array = np.arange(int(trues.shape[1]))
        return {
            "Samples": samples,
            "Probabilities": chances,
            "LogitsDim": np.empty((*Logits.shape, 0), Logits.dtype),
            "LabelsDim": np.empty((*Labels.shape, 0), Logits.dtype),
            "SampledLogits": sampled.astype(Logits.dtype),
            "SampledLabels": np.broadcast_to(indices, trues.shape).astype(np.int64),
        }

    def grad(
        self, Samples: Array, LogitsDim: Shape, LabelsDim: Shape, d_SampledLogits: Array
    ) -> dict[str, Array]:
        d_Logits = np.zeros(numeric(LogitsDim[:-1]), d_SampledLogits.dtype)
        rows = np.arange(len(Samples))[:, None]
        np.add.at(d_Logits, (rows, Samples), d_SampledLogits)
        return {"Logits": d_Logits}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Labels = s.Labels
        CustomizedSamples = s.get("CustomizedSamples")
        classes = s.Logits.shape[1]
        k.line(f"{k.function(row_labels)}({Labels}, {classes})")
        if CustomizedSamples is not None:
            k.line(f"{k.function(check_indices)}({CustomizedSamples}, {classes}, {self.kind!r})")

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.Samples}, {s.Logits.shape[1]}, {self.kind!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Labels = s.Labels
        if (SampledLogits := s.get("SampledLogits")) is not None:
            i, c = k.grid(*SampledLogits.shape)
            r, number = k.loop(Labels.shape[1]), s.CustomizedSamples[i, c]
            in_range = inside(k, number, s.Logits.shape[1])
            value = s.Logits.at(i, number, where=in_range, other=float("nan"))
            value = value - k.log(s.CustomizedProbabilities[i, c])
            if self.remove_accidental_hits:
                hit = k.max(k.astype(k.equal(Labels[i, r], number), DType.INT32), r) > 0
                hit = hit & (c >= k.size(Labels.shape[1]))
                value = value - k.where(hit, HIT, 0.0)
            k.store(SampledLogits, (i, c), value)
        if (SampledLabels := s.get("SampledLabels")) is not None:
            i, c = k.grid(*SampledLabels.shape)
            k.store(SampledLabels, (i, c), c)
        pairs = (
            (s.CustomizedSamples, s.get("Samples")),
            (s.CustomizedProbabilities, s.get("Probabilities")),
        )
        for source, out in pairs:
            if out is not None:
                copy(k, source, out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        i, c = k.grid(*s.d_Logits.shape)
        r = k.loop(s.Samples.shape[1])
        share = k.where(k.equal(s.Samples[i, r], c), s.d_SampledLogits[i, r], 0)
        k.store(s.d_Logits, (i, c), k.sum(share, r))
