"""Checks of numbers that kernels take for granted: ids are rows of a table, labels are classes.

An op writes them as lines of the step, by its body `check_values`. Its gradient makes the same
checks, since the op itself may be gone when only its gradient is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.reference_calls import ShapeOf
from compiler.ir.opdef import call, has
from compiler.ir.opdef.slot_values import slot_reads
from compiler.ir.program import GRAD
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind


def check_values(writer: NativeModuleWriter, step: Step) -> None:
    """Write the checks of a step's ops: before the sequence begun if they concern feeds alone.

    Raises NotLowered if a number to check is never stored.
    """
    for op in step.ops:
        values = _parameters(op) if has(op.defn, "check_values") else None
        if values is None:
            continue
        numbers = [
            v for slot_values in values.values() for v in slot_values if not v.type.dtype.is_float
        ]
        if any(value.place is StorageKind.INNER for value in numbers):
            raise NotLowered(f"{op.kind} checks numbers that are not stored")
        with writer.checks(op, all(value.place is StorageKind.FEED for value in numbers)):
            call(op.defn, "check_values", _operands(writer, op, values), writer)


def _parameters(op: PlannedOp) -> dict[str, Sequence[PlannedValue]] | None:
    """The values that the body reads by slot; None if one that it needs is missing.

    Of a forward input that a gradient op does not have, the gradient has the shape.
    """
    owner, body = op.defn.body_owner("check_values")
    result: dict[str, Sequence[PlannedValue]] = {}
    reads = slot_reads(type(owner), body)
    for name in (name for name in owner.slots if name in reads.names):
        values = op.inputs.get(name) or op.outputs.get(name) or op.outputs.get(name + GRAD)
        if not values and name in reads.needed:
            return None
        result[name] = values or ()
    return result


def _operands(
    writer: NativeModuleWriter, op: PlannedOp, values: Mapping[str, Sequence[PlannedValue]]
) -> dict[str, Any]:
    """The operands of values by slot; those that are never stored have a shape only."""
    slots = op.defn.body_owner("check_values")[0].slots
    operands = {
        slot: [
            ShapeOf(v) if v.place is StorageKind.INNER else writer.operand(v) for v in slot_values
        ]
        for slot, slot_values in values.items()
    }
    return {slot: slots[slot].hold(slot_operands) for slot, slot_operands in operands.items()}
