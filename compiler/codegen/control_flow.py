"""Code for control flow ops, which own a body: `if`, `loop`, and `unwind`, its gradient."""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.offset_checks import (
    check_offsets,
    note_written_offsets,
    offsets_of_iterations,
)
from compiler.ir.conversion.block_walk import CAPTURED, RUNS, WRITTEN
from compiler.plan import PlannedOp, PlannedValue, Step

BODIES = frozenset({"if", "loop", "unwind"})
"""The ops that own a body."""


def emit_body(
    writer: ModuleWriter, op: PlannedOp, emit_step: Callable[[ModuleWriter, Step], None]
) -> None:
    """Write an op that owns a body; `emit_step` writes one step of it."""
    _begin(writer, op)
    writer.line(_header(writer, op))
    writer.enter()
    with offsets_of_iterations(writer, op):
        for step in op.body:
            check_offsets(writer, step)
            emit_step(writer, step)
            note_written_offsets(writer, step)
    for runs in op.outputs.get(RUNS, ()):
        kept = "".join(f"{_copy(writer, value)}, " for value in op.kept)
        writer.line(f"{writer.operand(runs)}.append(({kept.rstrip()}))")
    if not op.body and RUNS not in op.outputs:
        writer.line("pass")
    writer.leave()


def _begin(writer: ModuleWriter, op: PlannedOp) -> None:
    """Initialise values that must exist even if the body does not run."""
    seen = {value.storage for value in op.inputs.get(CAPTURED, ())}
    for value in op.outputs.get(WRITTEN, ()):
        name = writer.operand(value).name
        if value.type.is_open and value.storage not in seen:
            writer.line(f"{name} = None")
    for runs in op.outputs.get(RUNS, ()):
        writer.line(f"{writer.operand(runs)} = []")


def _header(writer: ModuleWriter, op: PlannedOp) -> str:
    if op.kind == "unwind":
        names = "".join(f"{writer.local(value).name}, " for value in op.given)
        return f"for {f'({names.rstrip()})' if names else '_'} in reversed({_runs(writer, op)}):"
    test = "size" if op.defn.attributes["any_element"] else "all()"
    conditions = " and ".join(f"{writer.operand(v)}.{test}" for v in op.inputs["Cond"])
    return f"{'while' if op.kind == 'loop' else 'if'} {conditions}:"


def _runs(writer: ModuleWriter, op: PlannedOp) -> str:
    return writer.operand(op.inputs[RUNS][0]).name


def _copy(writer: ModuleWriter, value: PlannedValue) -> str:
    """Copy a value saved for the backward loop, since the next iteration overwrites it.

    One of data-dependent size is None if it is that of a branch that did not run.
    """
    name = writer.operand(value).name
    if value.type.is_array:
        return name
    return (
        f"{name} if {name} is None else {name}.copy()" if value.type.is_open else f"{name}.copy()"
    )
