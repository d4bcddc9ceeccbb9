"""A kernel that begins with a head: where the head's result stands while the rest goes on with it.

A head (a product, a convolution) makes all of its result, and the pointwise ops behind it, its
tail, follow in place, in the memory of an output of the kernel. Where no output has its type, or
the kernel reads what stood there, the result gets scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.codegen.bind_and_run import Frame
from compiler.ir.region import leading_axes
from compiler.plan import Place, PlannedOp, Step, Value

_Slots = Mapping[str, tuple[Value, ...]]


def head_and_tail(frame: Frame, step: Step) -> tuple[PlannedOp, Step]:
    """The first op of a kernel, and its other ops as a kernel over what the first one makes."""
    head, *tail = step.ops
    (made,) = head.outputs[head.defn.epilogue_output(head.target)]
    if made.place is not Place.INNER:
        return head, replace(step, ops=tuple(tail))
    seated = _seated(frame, head, made, step)
    outputs = _exchanged(head.outputs, made, seated)
    rest = tuple(replace(op, inputs=_exchanged(op.inputs, made, seated)) for op in tail)
    return replace(head, outputs=outputs), replace(step, ops=rest, dying=step.dying | {seated})


def _seated(frame: Frame, head: PlannedOp, made: Value, step: Step) -> Value:
    """What the head makes, in memory that it may write before the tail begins."""
    read = {value.storage for op in step.ops for side in op.inputs.values() for value in side}
    for value in (value for op in step.ops for side in op.outputs.values() for value in side):
        own = value.place in (Place.BUFFER, Place.LOCAL)
        fits = value.type == made.type and _bears_gaps(head, value)
        if own and fits and value.storage not in read:
            return replace(made, place=value.place, home=value.home, region=value.region)
    return replace(
        made, place=Place.BUFFER, home=frame.room(f"t{frame.step}", made.type, made.on_device)
    )


def _bears_gaps(head: PlannedOp, value: Value) -> bool:
    """True where the head can write between the gaps that a value's memory has, if any."""
    if not value.region.has_gaps:
        return True
    axes = leading_axes(value.type, value.region.row)
    return axes is not None and head.defn.may_have_gaps(
        head.defn.epilogue_output(head.target), axes
    )


def _exchanged(slots: _Slots, old: Value, new: Value) -> _Slots:
    return {
        slot: tuple(new if value == old else value for value in values)
        for slot, values in slots.items()
    }
