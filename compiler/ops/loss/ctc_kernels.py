"""CTC kernels: one launch per time step of all lattices.

Log-scores are float64; a large negative number replaces -inf, to avoid inf - inf.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number, Operand
from compiler.ir.types import DType
from compiler.ops.loss.ctc_steps import ctc_steps

IMPOSSIBLE = -1e30
"""Log-score of an impossible path."""

Levels = Sequence[Operand] | None


class Lattices:
    """The lattices of all lines: blanks alternating with labels."""

    def __init__(
        self,
        k: KernelBuilder,
        Logits: DeviceOperand,
        Label: DeviceOperand,
        levels: tuple[Levels, Levels],
        lengths: tuple[Operand | None, Operand | None],
        lines: Size,
        blank: int,
    ) -> None:
        sizes = Logits.shape[0], Label.shape[-1]
        tables = k.on_host(ctc_steps, *levels, *lengths, *sizes)
        self.k, self.blank, self.lines = k, blank, lines
        self.classes: Size = Logits.shape[-1]
        self.logits = Logits.reshaped((Logits.type.numel // self.classes, self.classes))
        self.labels = Label.reshaped((Label.type.numel,))
        self.steps = tables[0].length()
        self.onwards, self.back = tables[0], tables[1]
        self.count: Size = k.as_size(self.steps, "steps")
        self.most: Size = k.as_size(tables[4], "labels")
        self.row_at = k.to_device(tables[2], (lines, self.count))
        self.label_at = k.to_device(tables[3], (lines, self.most))
        self.lengths = k.to_device(tables[5], (2, lines))
        self.norms = self._norms()

    @property
    def positions(self) -> Size:
        """Number of positions of the longest lattice."""
        return self.most * 2 + 1

    def _norms(self) -> DeviceOperand:
        """Emit a kernel for the log-sum-exp of each row."""
        k = self.k
        norms = k.scratch(self.logits.shape[:1], self.logits.type.dtype)
        (i,) = k.grid(self.logits.shape[0])
        j = k.loop(self.classes)
        maximum = k.max(self.logits[i, j], j)
        k.store(norms, (i,), maximum + k.log(k.sum(k.exp(self.logits[i, j] - maximum), j)))
        return norms

    def class_at(self, line: Number, position: Number) -> Number:
        """Return the class at a lattice position."""
        k = self.k
        number = k.div(position, 2)
        named = k.equal(k.mod(position, 2), 1) & (number < self.lengths[1, line])
        at = self.label_at.at(line, number, where=named, other=0)
        return self.labels.at(at, where=named, other=self.blank)

    def score(self, line: Number, step: Number, position: Number, where: Number) -> Number:
        """Return the log-probability of the class at a lattice position."""
        row, label = self.row_at.at(line, step, where=where, other=0), self.class_at(line, position)
        in_range = where & (label >= 0) & (label < self.k.size(self.classes))
        share = self.logits.at(row, label, where=in_range, other=IMPOSSIBLE)
        return self.k.astype(share - self.norms.at(row, where=in_range, other=0), DType.FP64)

    def may_skip(self, line: Number, position: Number) -> Number:
        """Return whether a path may skip a position: over a blank, to another class."""
        mine, theirs = self.class_at(line, position), self.class_at(line, position - 2)
        odd = self.k.equal(self.k.mod(position, 2), 1) & (position >= 2)
        return odd & self.k.not_equal(mine, self.blank) & self.k.not_equal(mine, theirs)


def log_sum_exp(k: KernelBuilder, scores: Sequence[Number]) -> Number:
    """Return the log-sum-exp of three scores."""
    maximum = k.maximum(k.maximum(scores[0], scores[1]), scores[2])
    total = sum(k.exp(score - maximum) for score in scores)
    return k.maximum(maximum + k.log(total), IMPOSSIBLE)


def forward(lattices: Lattices) -> DeviceOperand:
    """Emit the kernels of the forward log-scores: [steps, lines, positions]."""
    k, shape = lattices.k, (lattices.lines, lattices.positions)
    scores = k.scratch((lattices.count, *shape), DType.FP64)
    with k.for_each(lattices.onwards, "step") as (step,):
        k.expect_at_most(step + 1, lattices.count)
        line, position = k.grid(*shape)
        now = position * 0 + k.size(step)
        live = now < lattices.lengths[0, line]
        emitted = lattices.score(line, now, position, live)
        ways = [
            scores.at(now - 1, line, position - by, where=allowed & (now > 0), other=IMPOSSIBLE)
            for by, allowed in (
                (0, position >= 0), (1, position >= 1), (2, lattices.may_skip(line, position)),
            )
        ]  # fmt: skip
        begun = k.where(position < 2, 0.0, IMPOSSIBLE)
        total = k.where(now > 0, log_sum_exp(k, ways), begun) + emitted
        k.store(
            scores, (now, line, position), k.where(live, k.maximum(total, IMPOSSIBLE), IMPOSSIBLE)
        )
    return scores


def backward(lattices: Lattices) -> DeviceOperand:
    """Emit the kernels of the backward log-scores, excluding each step's own emission."""
    k, shape = lattices.k, (lattices.lines, lattices.positions)
    scores = k.scratch((lattices.count, *shape), DType.FP64)
    onwards = k.scratch((lattices.count, *shape), DType.FP64)
    with k.for_each(lattices.back, "step") as (step,):
        k.expect_at_most(step + 1, lattices.count)
        line, position = k.grid(*shape)
        now = position * 0 + k.size(step)
        last, end = lattices.lengths[0, line] - 1, lattices.lengths[1, line] * 2
        continues = now < last
        steps = (
            (0, continues),
            (1, continues),
            (2, continues & lattices.may_skip(line, position + 2)),
        )
        ways = [
            onwards.at(
                now + 1, line, position + by,
                where=allowed & (position + by < k.size(lattices.positions)), other=IMPOSSIBLE,
            )
            for by, allowed in steps
        ]  # fmt: skip
        ends = (k.equal(position, end) | k.equal(position, end - 1)) & k.equal(now, last)
        total = k.where(continues, log_sum_exp(k, ways), k.where(ends, 0.0, IMPOSSIBLE))
        emitted = lattices.score(line, now, position, now <= last)
        k.store(scores, (now, line, position), total)
        k.store(onwards, (now, line, position), k.maximum(total + emitted, IMPOSSIBLE))
    return scores


def loss(
    lattices: Lattices, ahead: DeviceOperand, behind: DeviceOperand, Loss: DeviceOperand | None
) -> DeviceOperand:
    """Emit kernels for each line's total log-score, and the loss: 0 if no path exists."""
    k = lattices.k
    totals = k.scratch((lattices.lines,), DType.FP64)
    (line,) = k.grid(lattices.lines)
    position = k.loop(lattices.positions)
    there = lattices.lengths[0, line] > 0
    score = ahead.at(0, line, position, where=there, other=IMPOSSIBLE)
    score = score + behind.at(0, line, position, where=there, other=IMPOSSIBLE)
    maximum = k.max(score, position)
    total = maximum + k.log(k.sum(k.exp(score - maximum), position))
    k.store(totals, (line,), total)
    if Loss is not None:
        k.store(Loss, (line, 0), k.where(total > IMPOSSIBLE / 2, -total, 0.0))
    return totals


def gradient(
    lattices: Lattices, ahead: DeviceOperand, behind: DeviceOperand, totals: DeviceOperand,
    out: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the gradient of the logits: softmax minus the posterior of each class."""
    k = lattices.k
    step, line, c = k.grid(lattices.count, lattices.lines, lattices.classes)
    live = (step < lattices.lengths[0, line]) & (totals[line] > IMPOSSIBLE / 2)
    row = lattices.row_at[line, step]
    k.store(
        out, (step, line, c), k.where(live, k.exp(lattices.logits[row, c] - lattices.norms[row]), 0)
    )
    step, line, position = k.grid(lattices.count, lattices.lines, lattices.positions)
    live = (step < lattices.lengths[0, line]) & (totals[line] > IMPOSSIBLE / 2)
    likely = k.exp(ahead[step, line, position] + behind[step, line, position] - totals[line])
    label = lattices.class_at(line, position)
    in_range = live & (label >= 0) & (label < k.size(lattices.classes))
    k.add(out, (step, line, label), -k.astype(likely, out.type.dtype), in_range)
