"""Connectionist temporal classification: a loss for labels without alignment.

A path has a class or the blank at each step; merging repeated classes and removing blanks yields
its labels. The lattice alternates blanks and labels: `2 * labels + 1` positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss import ctc_kernels as ctc_kernels
from compiler.ops.loss.padded import expect_labels_of_lines, rows_by_length, rows_by_lod
from compiler.ops.sequence.sequence_kernels import owner_rows, rows_bounds
from compiler.ops.type_checks import differ, numeric, require_dtype, require_same_shape, shown


def label_lattice(Label: Array, label_at: Array, valid: Array, blank: int, classes: int) -> Array:
    """Return each line's labels interleaved with blanks: [lines, 2 * longest + 1].

    Raises ValueError for a label that is not a class.
    """
    labels = np.where(valid, Label.reshape(-1)[label_at], blank) if Label.size else label_at + blank
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        raise ValueError(f"Label has {labels[wrong][0]}, expected classes from 0 to {classes - 1}")
    lattice = np.full((len(label_at), 2 * label_at.shape[1] + 1), blank, np.int64)
    lattice[:, 1::2] = labels
    return lattice


def may_skip(lattice: Array, blank: int) -> Array:
    """Return where a path may skip a position: over a blank, between different classes."""
    skips = np.zeros(lattice.shape, np.bool_)
    skips[:, 2:] = (lattice[:, 2:] != blank) & (lattice[:, 2:] != lattice[:, :-2])
    return skips


def shift_scores(scores: Array, by: int) -> Array:
    """Shift scores along the lattice by `by` positions, filling with -inf."""
    width = scores.shape[1]
    moved = np.full_like(scores, -np.inf)
    moved[:, by:] = scores[:, : max(width - by, 0)]
    return moved


def step_scores(before: Array, skips: Array) -> Array:
    """Return the log-sum of the predecessors of each position: itself, the previous one, a skip."""
    ways = np.logaddexp(before, shift_scores(before, 1))
    return np.logaddexp(ways, np.where(skips, shift_scores(before, 2), -np.inf))


def scores_forward(emitted: Array, skips: Array) -> Array:
    """Return the forward log-scores; `emitted` is [lines, steps, positions]."""
    scores = np.full_like(emitted, -np.inf)
    scores[:, 0, :2] = emitted[:, 0, :2]
    for step in range(1, emitted.shape[1]):
        scores[:, step] = step_scores(scores[:, step - 1], skips) + emitted[:, step]
    return scores


def scores_backward(emitted: Array, skips: Array, counts: Array, ends: Array) -> Array:
    """Return the backward log-scores of each position and step, excluding that step's emission.

    `counts` are the steps and `ends` the last lattice position of each line; a path may end there
    or at the position before it.
    """
    width = emitted.shape[2]
    position = np.arange(int(width))
    final = np.where((position == ends[:, None]) | (position == ends[:, None] - 1), 0.0, -np.inf)
    mirrored = np.zeros_like(skips)
    mirrored[:, 2:] = skips[:, ::-1][:, : max(width - 2, 0)]
    scores = np.full_like(emitted, -np.inf)
    after = scores[:, 0]
    for step in reversed(range(emitted.shape[1])):
        further = step_scores(after[:, ::-1], mirrored)[:, ::-1]
        scores[:, step] = np.where((counts == step + 1)[:, None], final, further)
        after = scores[:, step] + emitted[:, step]
    return scores


def sum_by_class(likely: Array, lattice: Array, classes: int) -> Array:
    """Sum over lattice positions by class: [lines, steps, classes]."""
    lines, steps, _ = likely.shape
    total = np.zeros((lines, steps, classes), likely.dtype)
    line, step = np.ogrid[:lines, :steps]
    np.add.at(total, (line[..., None], step[..., None], lattice[:, None, :]), likely)
    return total


def ctc_lines(
    logits: Array, valid: Array, lattice: Array, ends: Array, blank: int
) -> tuple[Array, Array]:
    """Return the loss of each line and its gradient with respect to logits [lines, steps, classes].

    Both are 0 if the labels need more steps than the line has. Computed in float64, since
    log-scores of long paths are large.
    """
    shifted = logits - logits.max(2, keepdims=True, initial=-np.inf)
    shares = shifted - np.log(np.exp(shifted).sum(2, keepdims=True))
    everywhere = np.broadcast_to(lattice[:, None], (*valid.shape, lattice.shape[1]))
    emitted = np.take_along_axis(shares, everywhere, 2).astype(np.float64)
    skips, counts = may_skip(lattice, blank), valid.sum(1)
    forward = scores_forward(emitted, skips)
    backward = scores_backward(emitted, skips, counts, ends)
    total = np.logaddexp.reduce((forward + backward)[:, 0], axis=1)
    possible = np.isfinite(total)
    log_likelihood = np.where(possible, total, 0.0)
    likely = np.exp(forward + backward - log_likelihood[:, None, None])
    gradient = np.exp(shares) - sum_by_class(likely, lattice, logits.shape[2])
    counted = valid & possible[:, None]
    return -log_likelihood, np.where(counted[:, :, None], gradient, 0.0)


def expect_steps(offsets: Array, steps: int) -> None:
    """Raise ValueError unless WarpCTCGrad has the steps of the longest sequence."""
    longest = int(np.diff(offsets).max(initial=0))
    if steps != longest:
        raise ValueError(f"warpctc_grad: WarpCTCGrad has {steps} steps, expected {longest}")


class WarpCtc(OpDef, op="warpctc"):
    """Loss = -log of the probability of Label, summed over all alignments: [sequences, 1].

    Logits are [rows, classes] with LoD and Label [labels, 1] int32 with LoD; or, with LogitsLength
    and LabelLength, [longest, sequences, classes] and [sequences, longest]. WarpCTCGrad, [longest,
    sequences, classes], is the gradient; `norm_by_times` divides it by the steps of each sequence.
    The loss is 0 for labels longer than the logits allow. Reference: warpctc_op.h.
    """

    sets_output_sizes = True

    Logits = reads()
    Label = reads(no_grad=True)
    LogitsLength = reads(optional=True, no_grad=True, on_host=True)
    LabelLength = reads(optional=True, no_grad=True, on_host=True)
    Logits_lod = reads_lod("Logits", optional=True)
    Label_lod = reads_lod("Label", optional=True)
    WarpCTCGrad = writes()
    WarpCTCGrad_lod = writes_lod("WarpCTCGrad")
    Loss = writes()
    Loss_lod = writes_lod("Loss")
    blank = attr(0)
    norm_by_times = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType | list[TensorType]]:
        Logits, Label = s.Logits, s.Label
        LogitsLength, LabelLength = s.get("LogitsLength"), s.get("LabelLength")
        Logits_lod = s.all("Logits_lod")
        require_dtype(self.kind, "Label", Label, DType.INT32)
        padded = LogitsLength is not None and LabelLength is not None
        if Logits.rank != 2 + padded:
            shapes = shown(Logits=Logits, Label=Label)
            shape = "[longest, sequences, classes]" if padded else "[rows, classes]"
            raise ShapeError(f"{self.kind}: {shapes}, expected Logits {shape}")
        if padded and LogitsLength is not None and LabelLength is not None:
            lines = Logits.shape[1]
            counts = (LogitsLength.numel, LabelLength.numel, *Label.shape[:1])
            if Label.rank != 2 or any(differ(count, lines) for count in counts):
                shapes = shown(Label=Label, LogitsLength=LogitsLength, LabelLength=LabelLength)
                raise ShapeError(f"{self.kind}: {shapes}, expected a row for each of {lines} lines")
        classes = Logits.shape[-1]
        if self.blank < 0 or (isinstance(classes, int) and self.blank >= classes):
            raise BadAttribute(f"{self.kind}: 'blank' is {self.blank}, not a class of {Logits}")
        count: Size = Logits_lod[-1].shape[0] - 1 if Logits_lod else UNKNOWN
        wide = Logits.shape if padded else (UNKNOWN, count, classes)
        return {
            "WarpCTCGrad": Logits.with_shape(wide),
            "WarpCTCGrad_lod": [],
            "Loss": Logits.with_shape((wide[1], 1)),
            "Loss_lod": [],
        }

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Logits = s.Logits
        Logits_lod = s.all("Logits_lod")
        count: Size = Logits_lod[-1].shape[0] - 1 if Logits_lod else UNKNOWN
        shape = (
            (UNKNOWN, count, *Logits.shape[-1:]) if s.get("LogitsLength") is None else Logits.shape
        )
        wide = Logits.with_shape(shape)
        require_same_shape("warpctc_grad", WarpCTCGrad=s.WarpCTCGrad, Logits=wide)
        loss = wide.with_shape((wide.shape[1], 1))
        require_same_shape("warpctc_grad", **{"Loss@GRAD": s.d_Loss, "Loss": loss})
        return {"Logits": Logits}

    def numpy(
        self,
        Logits: Array,
        Label: Array,
        LogitsLength: Array | None,
        LabelLength: Array | None,
        Logits_lod: list[Array] | None,
        Label_lod: list[Array] | None,
    ) -> dict[str, Array | list[Array]]:
        if LogitsLength is not None and LabelLength is not None:
            lines, valid = rows_by_length(LogitsLength, len(Logits), "LogitsLength")
            logits = Logits.transpose(1, 0, 2)
            label_at, named = rows_by_length(LabelLength, Label.shape[1], "LabelLength")
        elif Logits_lod and Label_lod:
            lines, valid = rows_by_lod(Logits_lod[-1])
            logits = Logits[lines]
            label_at, named = rows_by_lod(Label_lod[-1])
        else:
            raise ValueError("warpctc needs LoD of Logits and Label, or both their lengths")
        if len(lines) != len(label_at):
            raise ValueError(
                f"there are {len(lines)} sequences in Logits, {len(label_at)} in Label"
            )
        lattice = label_lattice(Label, label_at, named, self.blank, Logits.shape[-1])
        loss, gradient = ctc_lines(logits, valid, lattice, 2 * named.sum(1), self.blank)
        return {
            "WarpCTCGrad": gradient.transpose(1, 0, 2).astype(Logits.dtype),
            "WarpCTCGrad_lod": [],
            "Loss": loss[:, None].astype(Logits.dtype),
            "Loss_lod": [],
        }

    def grad(
        self,
        Logits: Shape,
        WarpCTCGrad: Array,
        LogitsLength: Array | None,
        Logits_lod: list[Array] | None,
        d_Loss: Array,
    ) -> dict[str, Array]:
        scaled = WarpCTCGrad * d_Loss.reshape(-1, 1)
        if LogitsLength is not None:
            counts = LogitsLength.reshape(-1, 1)
            return {"Logits": scaled / np.maximum(counts, 1) if self.norm_by_times else scaled}
        if not Logits_lod:
            raise ValueError("warpctc needs LoD of Logits, or LogitsLength")
        expect_steps(Logits_lod[-1], len(WarpCTCGrad))
        label_at, valid = rows_by_lod(Logits_lod[-1])
        if self.norm_by_times:
            scaled = scaled / np.maximum(valid.sum(1)[:, None], 1)
        d_Logits = np.zeros(numeric(Logits), scaled.dtype)
        d_Logits[label_at[valid]] = scaled.transpose(1, 0, 2)[valid]
        return {"Logits": d_Logits.astype(d_Loss.dtype)}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Logits, Label = s.Logits, s.Label
        LabelLength = s.get("LabelLength")
        check = k.function(expect_labels_of_lines)
        k.line(f"{check}({Label}, {LabelLength}, {Logits.shape[-1]}, 'classes')")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        WarpCTCGrad, Loss = s.get("WarpCTCGrad"), s.get("Loss")
        output = next(candidate for candidate in (WarpCTCGrad, Loss) if candidate is not None)
        lines = output.shape[0 if output is Loss else 1]
        levels, lengths = (
            (s.host.all("Logits_lod") or None, s.host.all("Label_lod") or None),
            (s.host.get("LogitsLength"), s.host.get("LabelLength")),
        )
        operands = s.Logits, s.Label, levels, lengths, lines, self.blank
        lattices = ctc_kernels.Lattices(k, *operands)
        if WarpCTCGrad is not None:
            k.set_size(WarpCTCGrad.shape[0], lattices.steps)
        forward, backward = ctc_kernels.forward(lattices), ctc_kernels.backward(lattices)
        totals = ctc_kernels.loss(lattices, forward, backward, Loss)
        if WarpCTCGrad is not None:
            ctc_kernels.gradient(lattices, forward, backward, totals, WarpCTCGrad)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        WarpCTCGrad, d_Logits = s.WarpCTCGrad, s.d_Logits
        lines = WarpCTCGrad.shape[1]
        if (LogitsLength := s.host.get("LogitsLength")) is not None:
            lengths = k.to_device(LogitsLength, (lines,), LogitsLength.type.dtype)
            step, line, c = position = k.grid(*d_Logits.shape)
            length = lengths[line]
        else:
            level = s.host.all("Logits_lod")[-1]
            k.on_host(expect_steps, level, WarpCTCGrad.shape[0])
            rows = d_Logits.shape[0]
            owners, rows_in = owner_rows(k, level, rows), rows_bounds(k, level, rows)
            row, c = position = k.grid(*d_Logits.shape)
            line, begin = owners[row], rows_in[0, row]
            step, length = row - begin, rows_in[1, row] - begin
        value = WarpCTCGrad[step, line, c] * s.d_Loss[line, 0]
        if self.norm_by_times:
            value = value / k.astype(k.maximum(length, 1), value.dtype)
        k.store(d_Logits, position, value)

    def host_only(self, types: Mapping[str, Any]) -> str:
        has_lengths = any(types.get(slot) for slot in ("Logits_lod", "LogitsLength"))
        return "" if has_lengths else "the sequence lengths are unknown"


def kept_classes(classes: Array, first: Array, blank: int, merge: bool) -> Array:
    """Return the mask of steps that remain after merging repeats and removing blanks.

    `first` marks the first step of each sequence.
    """
    mask = classes != blank
    if merge:
        mask[1:] &= (classes[1:] != classes[:-1]) | first[1:]
    return mask


class CtcAlign(OpDef, op="ctc_align"):
    """Output = each path with repeated classes merged and blanks removed.

    Input is [rows, 1] with LoD; Output has a matching LoD, and is a single -1 if nothing remains.
    Or Input is [lines, longest] with InputLength; Output is then padded with `padding_value`, and
    OutputLength is [lines, 1]. Reference: ctc_align_op.h.
    """

    no_kernel_reason = "the output length is data-dependent"

    Input = reads()
    InputLength = reads(optional=True)
    Input_lod = reads_lod("Input", optional=True)
    Output = writes()
    Output_lod = writes_lod("Output")
    OutputLength = writes(optional=True)
    blank = attr(0)
    merge_repeated = attr(True)
    padding_value = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType | list[TensorType]]:
        Input = s.Input
        Input_lod = s.all("Input_lod")
        require_dtype(self.kind, "Input", Input, DType.INT32, DType.INT64)
        if Input.rank != 2:
            raise ShapeError(f"{self.kind}: Input is {Input}, expected two axes")
        if s.get("InputLength") is not None:
            lengths = Input.with_shape((Input.shape[0], 1))
            return {"Output": Input, "Output_lod": [], "OutputLength": lengths}
        if differ(Input.shape[1], 1):
            raise ShapeError(f"{self.kind}: Input is {Input}, expected a class per row")
        count = Input_lod[-1].shape[0] if Input_lod else UNKNOWN
        offsets = [TensorType(DType.INT64, (count,))]
        return {"Output": Input.with_shape((UNKNOWN, 1)), "Output_lod": offsets}

    def numpy(
        self, Input: Array, InputLength: Array | None, Input_lod: list[Array] | None
    ) -> dict[str, Array | list[Array]]:
        classes, first = Input.reshape(-1), np.zeros(Input.size, np.bool_)
        if InputLength is None:
            if not Input_lod:
                raise ValueError("ctc_align needs LoD of Input, or the input InputLength")
            offsets = Input_lod[-1]
            first[offsets[:-1][np.diff(offsets) > 0]] = True
            mask = kept_classes(classes, first, self.blank, self.merge_repeated)
            left = np.concatenate([[0], np.cumsum(mask)])[offsets].astype(np.int64)
            rest = classes[mask] if mask.any() else np.full(1, -1, classes.dtype)
            return {"Output": rest.reshape(-1, 1), "Output_lod": [left]}
        _, valid = rows_by_length(InputLength, Input.shape[1], "InputLength")
        first.reshape(Input.shape)[:, :1] = True
        mask = kept_classes(classes, first, self.blank, self.merge_repeated)
        mask = mask.reshape(Input.shape) & valid
        counts = mask.sum(1)[:, None]
        output = np.full(Input.shape, self.padding_value, Input.dtype)
        output[np.arange(Input.shape[1]) < counts] = Input[mask]
        return {"Output": output, "Output_lod": [], "OutputLength": counts.astype(Input.dtype)}
