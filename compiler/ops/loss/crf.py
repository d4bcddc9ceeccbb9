"""Linear-chain conditional random fields: likelihood and Viterbi decoding.

Transition is [tags + 2, tags]: start weights, end weights, and weights from a tag (row) to the next
(column). All sequences are processed together, one time step at a time.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.loss import crf_kernels as crf_kernels
from compiler.ops.loss.crf_steps import line_rows
from compiler.ops.loss.padded import expect_labels_of_lines
from compiler.ops.type_checks import differ, numeric, require_dtype, require_same_dtype, shown


def require_field(
    op: str, Emission: TensorType, Transition: TensorType, Length: TensorType | None
) -> None:
    """Raise ShapeError unless Emission, in LoD or padded form, and Transition match."""
    axes = 2 if Length is None else 3
    tags = Emission.shape[-1]
    fits = Transition.rank == 2 and not differ(Transition.shape[1], tags)
    if Emission.rank != axes or not fits or differ(Transition.shape[0], tags + 2):
        actual = shown(Emission=Emission, Transition=Transition)
        shapes = "[rows, tags]" if Length is None else "[lines, longest, tags] with Length"
        raise ShapeError(f"{op}: {actual}, expected {shapes} and [tags + 2, tags]")
    if Length is not None and differ(Length.numel, Emission.shape[0]):
        raise ShapeError(f"{op}: {shown(Emission=Emission, Length=Length)}, expected one a line")
    require_same_dtype(op, Emission=Emission, Transition=Transition)


def require_tags(op: str, Label: TensorType, Emission: TensorType) -> None:
    """Raise ShapeError unless there is one int64 tag per row of Emission."""
    require_dtype(op, "Label", Label, DType.INT64)
    rows = Emission.shape[:-1]
    sizes = zip(Label.shape, (*rows, 1), strict=False)
    if Label.rank not in (len(rows), len(rows) + 1) or any(differ(a, b) for a, b in sizes):
        raise ShapeError(f"{op}: {shown(Emission=Emission, Label=Label)}, expected a tag per row")


def checked_tags(Label: Array, row_at: Array, valid: Array, count: int) -> Array:
    """Return the tag of each step; raise ValueError for a tag out of range."""
    tags = np.where(valid, Label.reshape(-1)[row_at], 0) if Label.size else row_at
    wrong = (tags < 0) | (tags >= count)
    if wrong.any():
        raise ValueError(f"Label has {tags[wrong][0]}, expected tags from 0 to {count - 1}")
    return tags


def forward_pass(powers: Array, weights: Array, valid: Array) -> tuple[Array, Array]:
    """Run the forward pass: return normalised forward probabilities and the log partition function.

    `powers` [lines, steps, tags] and `weights` are exponentials. The probabilities of a step sum to
    1; the logarithms of the normalisers are accumulated.
    """
    shares, total = np.zeros_like(powers), np.zeros(len(powers), powers.dtype)
    for step in range(powers.shape[1]):
        before = shares[:, step - 1] @ weights[2:] if step else weights[0]
        now = powers[:, step] * before
        sums = np.where(valid[:, step], now.sum(1), 1)
        shares[:, step] = now / sums[:, None] * valid[:, step, None]
        total += np.log(sums)
    counts = valid.sum(1)
    last = np.take_along_axis(shares, np.maximum(counts - 1, 0)[:, None, None], 1)[:, 0]
    return shares, total + np.log(np.where(counts > 0, last @ weights[1], 1))


def backward_pass(powers: Array, weights: Array, valid: Array) -> Array:
    """Run the backward pass: return normalised backward probabilities per step and tag."""
    shares = np.zeros_like(powers)
    last = valid.sum(1) - 1
    following = np.zeros_like(powers[:, 0]) if powers.shape[1] else powers
    for step in reversed(range(powers.shape[1])):
        inner = following @ weights[2:].T
        now = np.where((last == step)[:, None], weights[1], inner)
        shares[:, step] = now / np.where(valid[:, step], now.sum(1), 1)[:, None]
        following = shares[:, step] * powers[:, step]
    return shares * valid[:, :, None]


def path_weight(
    Emission: Array, Transition: Array, tags: Array, row_at: Array, valid: Array
) -> Array:
    """Return the score of the given tags of each line."""
    emitted = np.where(valid, Emission[row_at, tags], 0).sum(1)
    steps = np.where(valid[:, 1:], Transition[tags[:, :-1] + 2, tags[:, 1:]], 0).sum(1)
    counts = valid.sum(1)
    last = np.take_along_axis(tags, np.maximum(counts - 1, 0)[:, None], 1)[:, 0]
    ends = Transition[0, tags[:, 0]] + Transition[1, last]
    return emitted + steps + np.where(counts > 0, ends, 0)


def tag_counts(tags: Array, valid: Array, scale: Array, count: int) -> tuple[Array, Array]:
    """Count tags by line and step, and transitions as in Transition, scaled per line."""
    present = np.zeros((*tags.shape, count), scale.dtype)
    np.put_along_axis(present, tags[..., None], valid[..., None] * scale[:, None, None], 2)
    moves = np.zeros((count + 2, count), scale.dtype)
    heads = valid[:, 1:] * scale[:, None]
    np.add.at(moves, (tags[:, :-1] + 2, tags[:, 1:]), heads)
    counts = valid.sum(1)
    last = np.take_along_axis(tags, np.maximum(counts - 1, 0)[:, None], 1)[:, 0]
    np.add.at(moves[0], tags[:, 0], scale * (counts > 0))
    np.add.at(moves[1], last, scale * (counts > 0))
    return present, moves


def expected_counts(
    powers: Array, weights: Array, forward: Array, backward: Array, valid: Array, scale: Array
) -> tuple[Array, Array]:
    """Compute the expected counts of tags and transitions from both passes."""
    both = forward * backward
    sums = np.where(valid, both.sum(2), 1)
    present = both / sums[:, :, None] * scale[:, None, None]
    right = (powers * backward)[:, 1:]
    left = forward[:, :-1] * valid[:, 1:, None]
    joint = ((left @ weights[2:]) * right).sum(2)
    left = left * (scale[:, None] / np.where(valid[:, 1:], joint, 1))[:, :, None]
    last = np.maximum(valid.sum(1) - 1, 0)[:, None, None]
    ends = np.take_along_axis(present, last, 1)[:, 0]
    tags = weights.shape[1]
    moves = weights[2:] * (left.reshape(-1, tags).T @ right.reshape(-1, tags))
    return present, np.concatenate([present[:, :1].sum(0), ends.sum(0)[None], moves])


class LinearChainCrf(OpDef, op="linear_chain_crf"):
    """LogLikelihood = -log P(Label | Emission) of each sequence: [sequences, 1], to be minimised.

    Emission is [rows, tags] with LoD and Label [rows, 1], or [lines, longest, tags] with Length and
    Label [lines, longest]. Alpha (normalised forward probabilities), EmissionExps and
    TransitionExps are for the gradient. Reference: linear_chain_crf_op.h.
    """

    Emission = reads()
    Transition = reads()
    Label = reads(no_grad=True)
    Length = reads(optional=True, no_grad=True, on_host=True)
    Emission_lod = reads_lod("Emission", optional=True)
    Label_lod = reads_lod("Label", optional=True)
    Alpha = writes()
    EmissionExps = writes()
    TransitionExps = writes()
    LogLikelihood = writes()
    LogLikelihood_lod = writes_lod("LogLikelihood")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType | list[TensorType]]:
        Emission = s.Emission
        Length = s.get("Length")
        require_field(self.kind, Emission, s.Transition, Length)
        require_tags(self.kind, s.Label, Emission)
        count: Size = UNKNOWN if Length is None else Emission.shape[0]
        levels = s.all("Emission_lod") or s.all("Label_lod")
        if Length is None and levels:
            count = levels[-1].shape[0] - 1
        return {
            "Alpha": Emission,
            "EmissionExps": Emission,
            "TransitionExps": s.Transition,
            "LogLikelihood": Emission.with_shape((count, 1)),
            "LogLikelihood_lod": [],
        }

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Emission": s.EmissionExps, "Transition": s.TransitionExps}

    def numpy(
        self,
        Emission: Array,
        Transition: Array,
        Label: Array,
        Length: Array | None,
        Emission_lod: list[Array] | None,
        Label_lod: list[Array] | None,
    ) -> dict[str, Array | list[Array]]:
        row_at, valid = line_rows(Emission.shape[1], Emission_lod, Label_lod, Length)
        rows = Emission.reshape(-1, Emission.shape[-1])
        tags = checked_tags(Label, row_at, valid, rows.shape[1])
        highest = rows.max(1, keepdims=True)
        powers, weights = np.exp(rows - highest), np.exp(Transition)
        shares, total = forward_pass(powers[row_at], weights, valid)
        every = total + np.where(valid, highest[row_at, 0], 0).sum(1)
        alpha = np.zeros_like(rows)
        alpha[row_at[valid]] = shares[valid]
        loss = every - path_weight(rows, Transition, tags, row_at, valid)
        return {
            "Alpha": alpha.reshape(Emission.shape),
            "EmissionExps": powers.reshape(Emission.shape),
            "TransitionExps": weights,
            "LogLikelihood": loss[:, None],
            "LogLikelihood_lod": [],
        }

    def grad(
        self,
        Emission: Shape,
        Transition: Shape,
        Label: Array,
        Alpha: Array,
        EmissionExps: Array,
        TransitionExps: Array,
        Length: Array | None,
        Emission_lod: list[Array] | None,
        Label_lod: list[Array] | None,
        d_LogLikelihood: Array,
    ) -> dict[str, Array]:
        row_at, valid = line_rows(EmissionExps.shape[1], Emission_lod, Label_lod, Length)
        shape = numeric(Emission)
        tags = checked_tags(Label, row_at, valid, shape[-1])
        powers = EmissionExps.reshape(-1, shape[-1])[row_at]
        forward = Alpha.reshape(-1, shape[-1])[row_at] * valid[:, :, None]
        backward = backward_pass(powers, TransitionExps, valid)
        scale = d_LogLikelihood.reshape(-1)
        likely = expected_counts(powers, TransitionExps, forward, backward, valid, scale)
        real = tag_counts(tags, valid, scale, shape[-1])
        d_Emission = np.zeros((Label.size, shape[-1]), powers.dtype)
        d_Emission[row_at[valid]] = (likely[0] - real[0])[valid]
        return {"Emission": d_Emission.reshape(shape), "Transition": likely[1] - real[1]}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Emission, Label = s.Emission, s.Label
        Length = s.get("Length")
        check = k.function(expect_labels_of_lines)
        k.line(f"{check}({Label}, {Length}, {Emission.shape[-1]}, 'tags')")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Emission, Transition = s.Emission, s.Transition
        dtype = Emission.type.dtype
        field = crf_kernels.CrfSteps(
            k,
            s.host.all("Emission_lod") or None,
            s.host.all("Label_lod") or None,
            s.host.get("Length"),
            Emission.shape[1],
        )
        powers = s.get("EmissionExps") or k.scratch(Emission.shape, dtype)
        weights = s.get("TransitionExps") or k.scratch(Transition.shape, dtype)
        alpha = s.get("Alpha") or k.scratch(Emission.shape, dtype)
        highest = crf_kernels.exp_rows(k, Emission, powers)
        a, b = k.grid(*Transition.shape)
        k.store(weights, (a, b), k.exp(Transition[a, b]))
        shares = k.scratch(crf_kernels.tag_rows(Emission).shape, dtype)
        crf_kernels.forward_pass(field, crf_kernels.tag_rows(powers), weights, shares)
        logs = crf_kernels.normalise(k, shares, field, alpha)
        if (LogLikelihood := s.get("LogLikelihood")) is not None:
            operands = Emission, Transition, s.Label, highest, logs, alpha, weights
            crf_kernels.likelihood(field, *operands, LogLikelihood)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        dtype, longest = s.Alpha.type.dtype, s.EmissionExps.shape[1]
        field = crf_kernels.CrfSteps(
            k,
            s.host.all("Emission_lod") or None,
            s.host.all("Label_lod") or None,
            s.host.get("Length"),
            longest,
        )
        alpha, powers = crf_kernels.tag_rows(s.Alpha), crf_kernels.tag_rows(s.EmissionExps)
        upstream = s.d_LogLikelihood.reshaped((s.d_LogLikelihood.type.numel,))
        after = k.scratch(alpha.shape, dtype)
        crf_kernels.backward_pass(field, powers, s.TransitionExps, after)
        d_rows = s.get("d_Emission") or k.scratch(alpha.shape, dtype)
        crf_kernels.emission_gradient(field, alpha, powers, after, s.Label, upstream, d_rows)
        if (d_Transition := s.get("d_Transition")) is not None:
            operands = s.TransitionExps, s.Label, upstream, crf_kernels.tag_rows(d_rows)
            crf_kernels.transition_gradient(field, alpha, after, *operands, d_Transition)


def viterbi_paths(scores: Array, Transition: Array, valid: Array) -> Array:
    """Return the Viterbi path of each line of `scores` [lines, steps, tags]; ties go to the first.

    Tags beyond the end of a line are 0.
    """
    steps = scores.shape[1]
    came, best = np.zeros(scores.shape, np.int64), np.zeros(valid.shape, np.int64)
    reached: Array = scores[:, 0] + Transition[0]
    for step in range(1, steps):
        moves = reached[:, :, None] + Transition[2:]
        came[:, step] = moves.argmax(1)
        reached = np.where(valid[:, step, None], moves.max(1) + scores[:, step], reached)
    last = valid.sum(1) - 1
    now = (reached + Transition[1]).argmax(1)
    for step in reversed(range(steps)):
        best[:, step] = now
        stepped = np.take_along_axis(came[:, step], now[:, None], 1)[:, 0]
        now = np.where(step <= last, stepped, now)
    return best * valid


class CrfDecoding(OpDef, op="crf_decoding"):
    """ViterbiPath = the most likely tag of each row; with Label, 1 where it equals Label, else 0.

    Emission is [rows, tags] with LoD, and the path [rows, 1]; or [lines, longest, tags] with
    Length, and the path [lines, longest], 0 beyond the length. Reference: crf_decoding_op.h.
    """

    Emission = reads()
    Transition = reads()
    Label = reads(optional=True)
    Length = reads(optional=True, on_host=True)
    Emission_lod = reads_lod("Emission", optional=True)
    ViterbiPath = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Emission = s.Emission
        Length = s.get("Length")
        require_field(self.kind, Emission, s.Transition, Length)
        if (Label := s.get("Label")) is not None:
            require_tags(self.kind, Label, Emission)
        rows = Emission.shape[:-1]
        return TensorType(DType.INT64, (*rows, 1) if Length is None else rows)

    def numpy(
        self,
        Emission: Array,
        Transition: Array,
        Label: Array | None,
        Length: Array | None,
        Emission_lod: list[Array] | None,
    ) -> Array:
        row_at, valid = line_rows(Emission.shape[1], Emission_lod, None, Length)
        rows = Emission.reshape(-1, Emission.shape[-1])
        path = np.zeros(len(rows), np.int64)
        if valid.any():
            decoded = viterbi_paths(rows[row_at], Transition, valid)[valid]
            real = row_at[valid]
            path[real] = decoded if Label is None else decoded == Label.reshape(-1)[real]
        return path.reshape(-1, 1) if Length is None else path.reshape(Emission.shape[:-1])

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        field = crf_kernels.CrfSteps(
            k, s.host.all("Emission_lod") or None, None, s.host.get("Length"), s.Emission.shape[1]
        )
        crf_kernels.viterbi(field, s.Emission, s.Transition, s.get("Label"), s.ViterbiPath)
