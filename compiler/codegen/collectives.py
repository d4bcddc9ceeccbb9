"""The collectives of a plan: their schedule as text, and code to run a module on one rank."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, cast

from compiler.ir.opdef import GradOp, OpDef
from compiler.plan import Plan, PlannedOp, PlannedValue, Step

DESCRIBED = "described"
"""The attribute whose text describes an op in the schedule in place of its operand."""


def collectives(plan: Plan) -> tuple[str, ...]:
    """Return a line per collective op of a plan, in order; each loop body counts once."""
    return tuple(_line(op) for op in _communicating(plan.steps) if op.defn.is_ordered())


def alone_source(plan: Plan) -> list[str]:
    """Lines that define a single-rank `collective` for when the loader passes none to the module.

    Empty if the plan has no collectives.
    """
    owner = next((_owner(op.defn) for op in _communicating(plan.steps)), None)
    if owner is None:
        return []
    alone = cast("type[object]", type(owner.collective))
    source = inspect.getsource(alone).rstrip()
    default = f"globals().get('collective') or {alone.__name__}()"
    return ["", "", *source.splitlines(), "", "", f"collective = {default}"]


def _communicating(steps: Iterable[Step]) -> Iterator[PlannedOp]:
    """Yield the ops of steps and of their bodies that use `collective`."""
    for op in (op for step in steps for op in step.ops):
        yield from _communicating(op.body)
        if hasattr(_owner(op.defn), "collective"):
            yield op


def _owner(defn: OpDef) -> Any:
    return defn.origin if isinstance(defn, GradOp) else defn


def _line(op: PlannedOp) -> str:
    attributes = op.defn.attributes
    values = [value for side in (op.inputs, op.outputs) for vs in side.values() for value in vs]
    what = f"{attributes['variable']} {_type(values[0])}" if values else attributes["variable"]
    rest = {n: v for n, v in attributes.items() if n not in _NOT_COMPARED and v != ""}
    options = ", ".join(f"{name}={value}" for name, value in rest.items())
    return f"{op.kind} {attributes.get(DESCRIBED) or what} ({options})"


_NOT_COMPARED = frozenset(
    {"variable", DESCRIBED, "rank", "trainer_id", "endpoint", "other_endpoints"}
)
"""Attributes that the line contains already, or that differ between ranks."""


def _type(value: PlannedValue) -> str:
    sizes = (str(size) if isinstance(size, int) else "?" for size in value.type.shape)
    return f"{value.type.dtype.numpy.name}[{', '.join(sizes)}]"
