"""Shared kernel code of recurrent ops: the host loop over steps, activations, stacks of states.

The host computes the order of `time_steps` and loops over the steps; each launches a matrix product
over the sequences that are that long, with the cell fused as its epilogue.
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
from compiler.ops.sequence.time_steps import steps_of
from compiler.ops.shared_kernels import fill
from compiler.support.dataclass import dataclass

STEP = ("begin", "new", "before", "count", "next_begin", "next_count")
"""The fields of a step, in the order of `steps_of`."""


@dataclass(frozen=True)
class Block:
    """One step: `count` rows from `begin` in time-step order, from `new` in a stack of states.

    The previous states start at `before`. The next step has `next_count` rows from `next_begin`,
    which belong to the first sequences.
    """

    begin: Size = 0
    new: Size = 0
    before: Size = 0
    count: Size = 0
    next_begin: Size = 0
    next_count: Size = 0


class Steps:
    """All steps over the rows of sequences."""

    def __init__(self, k: KernelBuilder, level: Operand, rows: Size, backwards: bool) -> None:
        self.k = k
        self.rows = rows
        self.sequences: Size = level.shape[0] - 1
        self._found = k.on_host(steps_of, level, backwards)
        self.first: Size = k.as_size(self._found[0].length(), "first")
        k.expect_at_most(self.first, self.sequences)
        self.order = k.to_device(self._found[0], (self.first,), below=self.sequences)
        self.row_at = k.to_device(self._found[1], (rows,), below=rows)

    @property
    def onwards(self) -> HostValue:
        """The steps, first to last."""
        return self._found[3]

    @property
    def back(self) -> HostValue:
        """The steps, last to first."""
        return self._found[4]

    def places_before(self) -> DeviceOperand:
        """For each position in time-step order, the index of the previous state in a stack."""
        stacked = self.sequences + self.rows
        return self.k.to_device(self._found[2], (self.rows,), below=stacked)

    @contextmanager
    def each(self, steps: HostValue) -> Generator[Block]:
        """Launch the kernels emitted inside for each of some steps."""
        stacked = self.sequences + self.rows
        with self.k.for_each(steps, *STEP) as numbers:
            block = Block(*numbers)
            for begin, count, most in (
                (block.begin, block.count, self.rows),
                (block.new, block.count, stacked),
                (block.before, block.count, stacked),
                (block.next_begin, block.next_count, self.rows),
            ):
                self.k.expect_at_most(begin + count, most)
            yield block

    def stacks(
        self, initials: Sequence[DeviceOperand | None], widths: Sequence[Size], dtype: DType
    ) -> list[DeviceOperand]:
        """Stacks of states with only the initial ones set: to 0 if none are passed."""
        k, rows = self.k, self.sequences + self.rows
        stacks = [k.scratch((rows, width), dtype) for width in widths]
        for width in dict.fromkeys(widths):
            i, j = k.grid(self.first, width)
            for stack, initial in zip(stacks, initials, strict=True):
                if stack.shape[1] == width:
                    value = 0.0 if initial is None else initial[self.order[i], j]
                    k.store(stack, (i, j), value)
        return stacks

    def stacked(
        self, initials: Sequence[DeviceOperand | None], states: Sequence[DeviceOperand]
    ) -> list[DeviceOperand]:
        """States of the rows of sequences in time-step order, stacked above the initial ones."""
        k, widths = self.k, [each.shape[-1] for each in states]
        stacks = self.stacks(initials, widths, states[0].type.dtype)
        for width in dict.fromkeys(widths):
            p, j = k.grid(self.rows, width)
            for stack, each in zip(stacks, states, strict=True):
                if stack.shape[1] == width:
                    k.store(stack, (p + k.size(self.first), j), each[self.row_at[p], j])
        return stacks

    def cleared(self, d_initial: DeviceOperand) -> DeviceOperand:
        """The gradient of initial states, zeroed for the sake of empty sequences."""
        fill(self.k, d_initial, 0.0)
        return d_initial


def activated(k: KernelBuilder, value: Number, kind: str) -> Number:
    """Apply an activation; "sigmoid" clamps its argument to [-40, 13], "logistic" does not."""
    if kind == "sigmoid":
        return 1.0 / (k.exp(k.clip(-value, -13.0, 40.0)) + 1.0)
    if kind == "logistic":
        return 1.0 / (k.exp(-value) + 1.0)
    if kind == "tanh":
        return k.tanh(value)
    return k.maximum(value, 0.0) if kind == "relu" else value


def slope(k: KernelBuilder, active: Number, kind: str) -> Number:
    """The derivative of an activation, from its output."""
    if kind in ("sigmoid", "logistic"):
        return active * (1.0 - active)
    if kind == "tanh":
        return 1.0 - active * active
    return k.where(active > 0.0, 1.0, 0.0) if kind == "relu" else 1.0


def clipped(k: KernelBuilder, value: Number, clip: float) -> Number:
    """Clip a number to ± `clip`; 0 means no clip."""
    return k.clip(value, -clip, clip) if clip > 0.0 else value


def within(k: KernelBuilder, value: Number, clip: float) -> Number:
    """1 where a clip leaves a number unchanged, 0 where it is active."""
    return k.where(k.absolute(value) < clip, 1.0, 0.0) if clip > 0.0 else 1.0
