"""CRF kernels: one launch per time step of all sequences.

Forward probabilities are stored unnormalised and divided by their sum where they are loaded, so
that a step needs a single pass.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    HostValue,
    KernelBuilder,
    Number,
    Operand,
)
from compiler.ir.types import DType
from compiler.ops.loss.crf_steps import crf_steps
from compiler.ops.shared_kernels import fill, inside

Levels = Sequence[Operand] | None


class CrfSteps:
    """The steps of all sequences: the row, the previous and next row (or -1), and the sequence."""

    def __init__(
        self,
        k: KernelBuilder,
        levels: Levels,
        others: Levels,
        Length: Operand | None,
        longest: Size,
    ) -> None:
        tables = k.on_host(crf_steps, levels, others, Length, longest)
        self.k = k
        self.count: Size = k.as_size(tables[1], "entries")
        self.at = k.to_device(tables[0], (4, self.count))
        self.onwards, self.back = tables[2], tables[3]

    @contextmanager
    def each(self, steps: HostValue) -> Generator[tuple[Size, Size]]:
        """Launch the kernels emitted inside for `count` entries from `begin` of each step."""
        with self.k.for_each(steps, "begin", "count") as (begin, count):
            self.k.expect_at_most(begin + count, self.count)
            yield begin, count

    def rows(self, entry: Number) -> tuple[Number, Number, Number, Number]:
        """Return the row, the previous row, the next row and the sequence of a step."""
        row, before, after_row, line = (self.at[part, entry] for part in range(4))
        return row, before, after_row, line


def tag_rows(X: DeviceOperand) -> DeviceOperand:
    """View padded or LoD data as [rows, tags]."""
    return X.reshaped((X.type.numel // X.shape[-1], X.shape[-1]))


def exp_rows(k: KernelBuilder, Emission: DeviceOperand, out: DeviceOperand) -> DeviceOperand:
    """Emit kernels for exp(Emission - row maximum); return the row maxima: [rows]."""
    rows = tag_rows(Emission)
    highest = k.scratch(rows.shape[:1], Emission.type.dtype)
    (i,) = k.grid(rows.shape[0])
    j = k.loop(rows.shape[1])
    row_max = k.max(rows[i, j], j)
    k.store(highest, (i,), row_max)
    k.store(tag_rows(out), (i, j), k.exp(rows[i, j] - row_max))
    return highest


def forward_pass(
    field: CrfSteps, powers: DeviceOperand, weights: DeviceOperand, shares: DeviceOperand
) -> None:
    """Emit the kernels of the forward pass, one per time step, unnormalised."""
    k, tags = field.k, weights.shape[1]
    with field.each(field.onwards) as (begin, count):
        i, j = k.grid(count, tags)
        row, before, _, _ = field.rows(i + k.size(begin))
        r = k.loop(tags)
        came = shares.at(before, r, where=before >= 0, other=0)
        total = k.sum(came * weights[r + 2, j], r) / k.sum(came, r)
        begun = k.where(before >= 0, total, weights[0, j])
        k.store(shares, (row, j), powers[row, j] * begun)


def normalise(
    k: KernelBuilder, shares: DeviceOperand, field: CrfSteps, out: DeviceOperand
) -> DeviceOperand:
    """Emit kernels that normalise forward probabilities; return log-normalisers."""
    logs = k.scratch(shares.shape[:1], shares.type.dtype)
    fill(k, out, 0.0)
    (i,) = k.grid(field.count)
    row = field.rows(i)[0]
    j = k.loop(shares.shape[1])
    total = k.sum(shares[row, j], j)
    k.store(logs, (row,), k.log(total))
    k.store(tag_rows(out), (row, j), shares[row, j] / total)
    return logs


def likelihood(
    field: CrfSteps, Emission: DeviceOperand, Transition: DeviceOperand, Label: DeviceOperand,
    highest: DeviceOperand, logs: DeviceOperand, alpha: DeviceOperand, weights: DeviceOperand,
    Loss: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the loss of each sequence, accumulated over its rows."""
    k, tags = field.k, Transition.shape[1]
    labels, rows = Label.reshaped((Label.type.numel,)), tag_rows(Emission)
    fill(k, Loss, 0.0)
    (i,) = k.grid(field.count)
    row, before, after_row, line = field.rows(i)
    tag = labels[row]
    in_range = inside(k, tag, tags)
    last = labels.at(before, where=before >= 0, other=0)
    paired = in_range & inside(k, last, tags)
    came = Transition.at(last + 2, tag, where=paired & (before >= 0), other=0)
    begun = Transition.at(0, tag, where=in_range & (before < 0), other=0)
    ended = Transition.at(1, tag, where=in_range & (after_row < 0), other=0)
    real = rows.at(row, tag, where=in_range, other=float("nan")) + came + begun + ended
    j = k.loop(tags)
    rest = k.sum(tag_rows(alpha)[row, j] * weights[1, j], j)
    every = logs[row] + highest[row] + k.where(after_row < 0, k.log(rest), 0.0)
    k.add(Loss, (line, 0), every - real)


def backward_pass(
    field: CrfSteps, powers: DeviceOperand, weights: DeviceOperand, shares: DeviceOperand
) -> None:
    """Emit the kernels of the backward pass, multiplied by the emissions."""
    k, tags = field.k, weights.shape[1]
    with field.each(field.back) as (begin, count):
        i, j = k.grid(count, tags)
        row, _, after_row, _ = field.rows(i + k.size(begin))
        r = k.loop(tags)
        after = shares.at(after_row, r, where=after_row >= 0, other=0)
        total = k.sum(after * weights[j + 2, r], r) / k.sum(after, r)
        k.store(shares, (row, j), powers[row, j] * k.where(after_row >= 0, total, weights[1, j]))


def emission_gradient(
    field: CrfSteps, alpha: DeviceOperand, powers: DeviceOperand, after: DeviceOperand,
    Label: DeviceOperand, upstream: DeviceOperand, d_Emission: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for d_Emission: (marginal probability - one-hot label) * d_Loss."""
    k, tags = field.k, alpha.shape[1]
    labels = Label.reshaped((Label.type.numel,))
    fill(k, d_Emission, 0.0)
    (i,) = k.grid(field.count)
    row, _, _, line = field.rows(i)
    j = k.loop(tags)
    both = alpha[row, j] * after[row, j] / powers[row, j]
    real = k.where(k.equal(labels[row], j), 1.0, 0.0)
    k.store(tag_rows(d_Emission), (row, j), (both / k.sum(both, j) - real) * upstream[line])


def transition_gradient(
    field: CrfSteps, alpha: DeviceOperand, after: DeviceOperand, weights: DeviceOperand,
    Label: DeviceOperand, upstream: DeviceOperand, d_rows: DeviceOperand,
    d_Transition: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for d_Transition: expected minus actual transitions, starts and ends."""
    k, tags = field.k, weights.shape[1]
    labels = Label.reshaped((Label.type.numel,))
    moved = k.scratch((field.count, tags), weights.type.dtype)
    p, j = k.grid(field.count, tags)
    row, before, _, _ = field.rows(p)
    r = k.loop(tags)
    came = alpha.at(before, r, where=before >= 0, other=0)
    k.store(moved, (p, j), k.sum(came * weights[r + 2, j], r) * after[row, j])
    scaled = k.scratch(moved.shape, weights.type.dtype)
    (p,) = k.grid(field.count)
    row, before, _, line = field.rows(p)
    r = k.loop(tags)
    whole = k.sum(moved[p, r], r)
    scale = k.where(before >= 0, upstream[line] / k.where(before >= 0, whole, 1.0), 0.0)
    k.store(scaled, (p, r), scale * after[row, r])
    _, a, b, left, right = k.tiles((), tags, tags, field.count)
    before = field.rows(left)[1]
    came = alpha.at(before, a, where=before >= 0, other=0)
    k.store(d_Transition, (a + 2, b), k.contract(came, scaled[right, b]) * weights[a + 2, b])
    (p,) = k.grid(field.count)
    row, before, _, line = field.rows(p)
    last, tag = labels.at(before, where=before >= 0, other=-1), labels[row]
    in_range = inside(k, last, tags) & inside(k, tag, tags)
    k.add(d_Transition, (last + 2, tag), -upstream[line], in_range)
    for end in range(2):
        (j,) = k.grid(tags)
        p = k.loop(field.count)
        row, before, after_row, _ = field.rows(p)
        other = after_row if end else before
        k.store(d_Transition, (end, j), k.sum(k.where(other < 0, d_rows[row, j], 0.0), p))


def viterbi(
    field: CrfSteps, Emission: DeviceOperand, Transition: DeviceOperand,
    Label: DeviceOperand | None, path: DeviceOperand,
) -> None:  # fmt: skip
    """Emit the kernels of Viterbi decoding; ties take the first tag."""
    k, rows, tags = field.k, tag_rows(Emission), Transition.shape[1]
    reached = k.scratch(rows.shape, Emission.type.dtype)
    came = k.scratch(rows.shape, DType.INT32)
    chosen = k.scratch(rows.shape[:1], DType.INT32)
    with field.each(field.onwards) as (begin, count):
        i, j = k.grid(count, tags)
        row, before, _, _ = field.rows(i + k.size(begin))
        r = k.loop(tags)
        moves = reached.at(before, r, where=before >= 0, other=0) + Transition[r + 2, j]
        start = k.where(before >= 0, k.max(moves, r), Transition[0, j])
        k.store(reached, (row, j), rows[row, j] + start)
        k.store(came, (row, j), k.argmax(moves, r))
    with field.each(field.back) as (begin, count):
        (i,) = k.grid(count)
        row, _, after_row, _ = field.rows(i + k.size(begin))
        r = k.loop(tags)
        last = k.argmax(reached[row, r] + Transition[1, r], r)
        after = chosen.at(after_row, where=after_row >= 0, other=0)
        came_from = came.at(after_row, after, where=after_row >= 0, other=0)
        k.store(chosen, (row,), k.where(after_row >= 0, came_from, last))
    fill(k, path, 0)
    (i,) = k.grid(field.count)
    row = field.rows(i)[0]
    tag: Number = chosen[row]
    if Label is not None:
        right = k.equal(Label.reshaped((Label.type.numel,))[row], tag)
        tag = k.where(right, 1, 0)
    k.store(path.reshaped((path.type.numel,)), (row,), tag)
