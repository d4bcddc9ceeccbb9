"""Code for control flow ops, which own a body: `if`, `loop`, and `unwind`, its gradient."""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.offset_checks import (
    check_offsets,
    note_written_offsets,
    offsets_of_iterations,
)
from compiler.ir.conversion.body_walk import CAPTURED, RUNS, WRITTEN
from compiler.plan import PlannedOp, Step, Value

BODIES = frozenset({"if", "loop", "unwind"})
"""The ops that own a body."""


def emit_body(frame: Frame, op: PlannedOp, emit_step: Callable[[Frame, Step], None]) -> None:
    """Write an op that owns a body; `emit_step` writes one step of it."""
    _begin(frame, op)
    frame.line(_header(frame, op))
    frame.enter()
    with offsets_of_iterations(frame, op):
        for step in op.body:
            check_offsets(frame, step)
            emit_step(frame, step)
            note_written_offsets(frame, step)
    for runs in op.outputs.get(RUNS, ()):
        kept = "".join(f"{_copy(frame, value)}, " for value in op.kept)
        frame.line(f"{frame.operand(runs)}.append(({kept.rstrip()}))")
    if not op.body and RUNS not in op.outputs:
        frame.line("pass")
    frame.leave()


def _begin(frame: Frame, op: PlannedOp) -> None:
    """Initialise values that must exist even if the body does not run."""
    seen = {value.storage for value in op.inputs.get(CAPTURED, ())}
    for value in op.outputs.get(WRITTEN, ()):
        name = frame.operand(value).name
        if value.type.is_open and value.storage not in seen:
            frame.line(f"{name} = None")
    for runs in op.outputs.get(RUNS, ()):
        frame.line(f"{frame.operand(runs)} = []")


def _header(frame: Frame, op: PlannedOp) -> str:
    if op.kind == "unwind":
        names = "".join(f"{frame.local(value).name}, " for value in op.given)
        return f"for {f'({names.rstrip()})' if names else '_'} in reversed({_runs(frame, op)}):"
    test = "size" if op.defn.attributes["any_element"] else "all()"
    conditions = " and ".join(f"{frame.operand(v)}.{test}" for v in op.inputs["Cond"])
    return f"{'while' if op.kind == 'loop' else 'if'} {conditions}:"


def _runs(frame: Frame, op: PlannedOp) -> str:
    return frame.operand(op.inputs[RUNS][0]).name


def _copy(frame: Frame, value: Value) -> str:
    """Copy a value saved for the backward loop, since the next iteration overwrites it."""
    return frame.operand(value).name + ("" if value.type.is_array else ".copy()")
