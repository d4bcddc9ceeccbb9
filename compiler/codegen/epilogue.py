"""Kernels with an epilogue: splits off the anchor and allocates its result.

The anchor (a product, a convolution) computes all of its result; the pointwise ops fused after it,
its epilogue, follow in place, in the memory of an output of the kernel. If no output has the
result's type, or the kernel reads that memory, the result gets scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.codegen.module_writer import ModuleWriter
from compiler.ir.region import leading_axes
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind

_Slots = Mapping[str, tuple[PlannedValue, ...]]


def split_anchor(writer: ModuleWriter, step: Step) -> tuple[PlannedOp, Step]:
    """Split a step into its first op, the anchor, and a step of the remaining ops."""
    anchor, *epilogue = step.ops
    (result,) = anchor.outputs[anchor.defn.epilogue_output(anchor.target)]
    if result.place is not StorageKind.INNER:
        return anchor, replace(step, ops=tuple(epilogue))
    allocated = _allocated(writer, anchor, result, step)
    outputs = _replaced(anchor.outputs, result, allocated)
    rest = tuple(replace(op, inputs=_replaced(op.inputs, result, allocated)) for op in epilogue)
    return replace(anchor, outputs=outputs), replace(step, ops=rest, dying=step.dying | {allocated})


def _allocated(
    writer: ModuleWriter, anchor: PlannedOp, result: PlannedValue, step: Step
) -> PlannedValue:
    """Return the anchor's result in memory that may be written before the epilogue begins."""
    read = {value.storage for op in step.ops for side in op.inputs.values() for value in side}
    for value in (value for op in step.ops for side in op.outputs.values() for value in side):
        is_allocated = value.place in (StorageKind.BUFFER, StorageKind.LOCAL)
        fits = value.type == result.type and _can_write_gaps(anchor, value)
        if is_allocated and fits and value.storage not in read:
            return replace(result, place=value.place, home=value.home, region=value.region)
    return replace(
        result,
        place=StorageKind.BUFFER,
        home=writer.new_buffer(f"t{writer.step}", result.type, result.on_device),
    )


def _can_write_gaps(anchor: PlannedOp, value: PlannedValue) -> bool:
    """True if the anchor can write around the gaps in a value's memory, if it has any."""
    if not value.region.is_strided:
        return True
    axes = leading_axes(value.type, value.region.row)
    return axes is not None and anchor.defn.supports_strided_rows(
        anchor.defn.epilogue_output(anchor.target), axes
    )


def _replaced(slots: _Slots, old: PlannedValue, new: PlannedValue) -> _Slots:
    return {
        slot: tuple(new if value == old else value for value in values)
        for slot, values in slots.items()
    }
