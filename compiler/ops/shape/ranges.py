"""Evenly spaced numbers: `range` and `linspace`, whose sizes are data-dependent."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type
from compiler.ops.type_checks import differ, require_same_dtype
from compiler.support.free_memory import expect_memory


class Range(OpDef, op="range"):
    """Out = Start, Start + Step, …, excluding End. Reference: range_op.h."""

    lod_source = ""

    sets_output_sizes = True

    Start = reads(no_grad=True, on_host=True)
    End = reads(no_grad=True, on_host=True)
    Step = reads(no_grad=True, on_host=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Start = s.Start
        require_same_dtype(self.kind, Start=Start, End=s.End, Step=s.Step)
        require_numbers(self.kind, Start=Start, End=s.End, Step=s.Step)
        return Start.with_shape([UNKNOWN])

    def numpy(self, Start: Array, End: Array, Step: Array) -> Array:
        count = range_count(Start, End, Step)
        expect_memory((count,), 2 * Step.itemsize)
        steps = np.full(count, Step.reshape(-1)[0])
        steps[:1] = Start.reshape(-1)[0]
        return np.cumsum(steps, dtype=steps.dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        k.set_size(Out.shape[0], k.on_host(range_count, s.host.Start, s.host.End, s.host.Step))
        start, step = (
            k.to_device(operand, (1,), Out.type.dtype) for operand in (s.host.Start, s.host.Step)
        )
        (i,) = k.grid(Out.shape[0])
        wide = DType.FP64 if Out.type.dtype.is_float else Out.type.dtype
        k.store(Out, (i,), k.astype(start[0], wide) + k.astype(step[0], wide) * k.astype(i, wide))


def range_count(start: Array, end: Array, step: Array) -> int:
    """Return the number of values before end; raise ValueError if end is unreachable.

    >>> range_count(np.array([1]), np.array([6]), np.array([2]))
    3
    """
    first, last, by = start.reshape(-1)[0], end.reshape(-1)[0], step.reshape(-1)[0]
    if by == 0 or (last - first) * by < 0:
        raise ValueError(f"range: step {by} does not reach {last} from {first}")
    return int(np.ceil((last - first) / by))


class Linspace(OpDef, op="linspace"):
    """Out = Num evenly spaced numbers from Start to Stop inclusive.

    Later models set the dtype by `dtype`. Reference: linspace_op.h.
    """

    lod_source = ""

    sets_output_sizes = True

    Start = reads(no_grad=True, on_host=True)
    Stop = reads(no_grad=True, on_host=True)
    Num = reads(no_grad=True, on_host=True)
    Out = writes()
    dtype = attr(-1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Start = s.Start
        require_same_dtype(self.kind, Start=Start, Stop=s.Stop)
        require_numbers(self.kind, Start=Start, Stop=s.Stop, Num=s.Num)
        dtype = Start.dtype if self.dtype < 0 else DType.of(self.dtype)
        return TensorType(dtype, (UNKNOWN,))

    def numpy(self, Start: Array, Stop: Array, Num: Array) -> Array:
        count = linspace_count(Num)
        dtype = Start.dtype if self.dtype < 0 else element_type(self.dtype)
        expect_memory((count,), 16 + dtype.itemsize)
        start, stop = float(Start.reshape(-1)[0]), float(Stop.reshape(-1)[0])
        return np.linspace(start, stop, count).astype(dtype)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        k.set_size(Out.shape[0], k.on_host(linspace_count, s.host.Num))
        operands = [
            k.to_device(operand, (1,), operand.type.dtype)
            for operand in (s.host.Start, s.host.Stop)
        ]
        (i,), last = k.grid(Out.shape[0]), k.size(Out.shape[0]) - 1
        start, stop = (k.astype(operand[0], DType.FP64) for operand in operands)
        step = (stop - start) / k.astype(k.maximum(last, 1), DType.FP64)
        value = start + k.astype(i, DType.FP64) * step
        k.store(Out, (i,), k.where(k.equal(i, last) & (i > 0), stop, value))


def linspace_count(num: Array) -> int:
    """Return the number of values; raise ValueError if below 1."""
    count = int(num.reshape(-1)[0])
    if count < 1:
        raise ValueError(f"linspace: Num is {count}, expected 1 or more")
    return count


def require_numbers(op: str, **slots: TensorType) -> None:
    """Raise ShapeError unless every input has one element."""
    for slot, type in slots.items():
        if differ(type.numel, 1):
            raise ShapeError(f"{op}: {slot} is {type}, expected one number")
