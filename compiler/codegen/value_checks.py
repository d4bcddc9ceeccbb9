"""Checks of numbers that kernels take for granted: ids are rows of a table, labels are classes.

An op writes them as lines of the step, by its body `check_values`. Its gradient makes the same
checks, since the op itself may be gone when only its gradient is needed; or those of
`check_grad_values`, of indices that the op computed: an op of another kind may have written them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.reference_calls import ShapeOf
from compiler.ir.opdef import OpDef, call, has
from compiler.ir.opdef.slot_values import slot_reads
from compiler.ir.program import GRAD
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind


def given_rows(steps: Sequence[Step]) -> set[str]:
    """Row indices of sparse values that a program is given, or computes from such: their labels.

    All others are ids, which the op that looked them up has compared with its table.
    """
    computed, given = set[str](), set[str]()
    pending = [op for step in reversed(steps) for op in reversed(step.ops)]
    while pending:
        op = pending.pop()
        read, written = _rows(op.defn, op.inputs), _rows(op.defn, op.outputs)
        given |= read - computed
        computed |= written
        if not given.isdisjoint(read):
            given |= written
        pending += [inner for step in reversed(op.body) for inner in reversed(step.ops)]
    return given


def _rows(defn: OpDef, values: Mapping[str, Sequence[PlannedValue]]) -> set[str]:
    """The labels of row indices among the values of an op."""
    slots = [slot for slot in values if defn.slots[slot].companion == "rows"]
    return {value.label for slot in slots for value in values[slot]}


def values_to_check(writer: ModuleWriter, op: PlannedOp) -> dict[str, Sequence[PlannedValue]]:
    """The values that the checks of an op read, by slot; none if it has no checks, if a value that
    they need is missing, or if the op itself computed the indices that its gradient reads. Rows of
    a sparse gradient are checked where the program is given them.

    Of a forward input that a gradient op does not have, the gradient has the shape.
    """
    if not has(op.defn, "check_values"):
        return {}
    owner, body = op.defn.body_owner("check_values")
    result: dict[str, Sequence[PlannedValue]] = {}
    reads = slot_reads(type(owner), body)
    for name in (name for name in owner.slots if name in reads.names):
        values = op.inputs.get(name) or op.outputs.get(name) or op.outputs.get(name + GRAD)
        if not values and name in reads.needed:
            return {}
        result[name] = values or ()
    if body == "check_grad_values":
        own = owner.outputs()
        computed = [value for slot, values in result.items() if slot in own for value in values]
        if all(writer.producers.get(value.label) == owner.kind for value in computed):
            return {}
    slots = [slot for slot in result if owner.slots[slot].companion == "rows"]
    rows = {value.label for slot in slots for value in result[slot]}
    return {} if rows and writer.given_rows.isdisjoint(rows) else result


def numbers(values: Mapping[str, Sequence[PlannedValue]]) -> list[PlannedValue]:
    """The values that are no floats: indices, labels and counts."""
    return [v for slot in values.values() for v in slot if not v.type.dtype.is_float]


def write_checks(
    writer: ModuleWriter, op: PlannedOp, values: Mapping[str, Sequence[PlannedValue]]
) -> None:
    """Write the checks of an op; values that are never stored have a shape only."""
    slots = op.defn.body_owner("check_values")[0].slots
    operands = {
        slot: [
            ShapeOf(v) if v.place is StorageKind.INNER else writer.operand(v) for v in slot_values
        ]
        for slot, slot_values in values.items()
    }
    held = {slot: slots[slot].hold(slot_operands) for slot, slot_operands in operands.items()}
    call(op.defn, "check_values", held, writer)
