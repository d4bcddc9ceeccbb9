"""The ops of a step as literals in a module, for their reference implementations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from compiler.ir.opdef import OpDef
from compiler.ir.types import DType
from compiler.plan import Plan, PlannedOp, PlannedValue, Step, Storage, StorageKind

CHECKS = "step_checks"
"""The global name of a module's checks; `runtime.load` may be given others under it."""


def has_plain_attributes(defn: OpDef) -> bool:
    """Whether the attributes of an op can be literals in a module."""
    return _is_plain(list(_attributes(defn).values()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, cast("list[Any]", value)))
    return value is None or type(value) in (bool, int, float, str)


def _attributes(defn: OpDef) -> dict[str, Any]:
    """The attributes that are not at their defaults."""
    return {n: v for n, v in defn.attributes.items() if v != defn.attrs[n].default}


def _op_row(op: PlannedOp) -> tuple[Any, ...]:
    """An op as a literal, see `ReferenceOp`."""
    reads, writes = _labels(op.inputs), _labels(op.outputs)
    return (op.kind, _attributes(op.defn), reads, writes, op.text, op.source)


def _labels(slots: Mapping[str, tuple[PlannedValue, ...]]) -> dict[str, list[str]]:
    return {slot: [value.label for value in values] for slot, values in slots.items()}


def step_inputs(step: Step) -> list[tuple[PlannedValue, bool]]:
    """The values that a step reads and does not compute, and if only their shapes are read."""
    computed, inputs = set[str](), dict[str, tuple[PlannedValue, bool]]()
    for op in step.ops:
        for slot, values in op.inputs.items():
            shapes = op.defn.slots[slot].shape_only
            for value in (value for value in values if value.label not in computed):
                only = shapes and inputs.get(value.label, (value, True))[1]
                inputs[value.label] = (value, only)
        computed |= {value.label for values in op.outputs.values() for value in values}
    return list(inputs.values())


def step_outputs(step: Step) -> dict[Storage, PlannedValue]:
    """The values that a step leaves in memory, the last of each place."""
    values = (value for op in step.ops for some in op.outputs.values() for value in some)
    return {v.storage: v for v in values if v.place is not StorageKind.INNER and _is_data(v)}


def _is_data(value: PlannedValue) -> bool:
    return value.type.dtype is not DType.TOKEN and not value.type.is_array


def _inner_types(ops: Iterable[PlannedOp]) -> tuple[str, ...]:
    """The element types of values that exist only between the ops of a step."""
    values = (value for op in ops for some in op.outputs.values() for value in some)
    inner = (value.type.dtype.numpy.name for value in values if value.place is StorageKind.INNER)
    return tuple(dict.fromkeys(inner))


def reference_row(step: Step) -> tuple[Any, ...]:
    """The ops of a step as a literal, see `ReferenceStep` in `compiler.debugging`."""
    read = [value.label for value, _ in step_inputs(step)]
    written = [value.label for value in step_outputs(step).values()]
    return ([*map(_op_row, step.ops)], read, written, _inner_types(step.ops))


def checks_lines(plan: Plan) -> list[str]:
    """The lines that import a module's checks and make those of a plan; none if not compared."""
    if not plan.compared:
        return []
    return [
        "from compiler.debugging.step_checks import StepChecks",
        f"{CHECKS} = globals().get({CHECKS!r}) or StepChecks({plan.name!r})",
    ]
