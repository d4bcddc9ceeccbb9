"""The NumPy target: lowers a plan to one readable module of calls over arena views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler.codegen.assemble import Style, assemble
from compiler.codegen.control_flow import BODIES, emit_body
from compiler.codegen.dynamic_values import emit_dynamic
from compiler.codegen.epilogue import split_anchor
from compiler.codegen.half_precision import cast_back, reads_half, upcast
from compiler.codegen.module import Module
from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.pointwise import emit_pointwise
from compiler.codegen.reference_calls import ShapeOf, call_reference
from compiler.codegen.value_checks import values_to_check, write_checks
from compiler.ir.attention import AttentionSupport
from compiler.ir.graph import Op
from compiler.ir.opdef import GradOp, OpDef, Pointwise, call, has
from compiler.plan import Plan, PlannedOp, PlannedValue, Step

_SCRIPT = (Path(__file__).parent / "script.py.txt").read_text(encoding="utf-8")
"""The code that runs when a module is executed as a script."""
STYLE = Style("numpy", "for NumPy", ("import numpy as np",), _SCRIPT)


class NumpyTarget:
    """Code generator for modules that need only NumPy."""

    name = "numpy"
    on_device = False
    multiplies_bytes = False
    attention = AttentionSupport()
    libraries = None

    def supports(self, op: Op) -> str:
        """Empty for an op with a reference and for control flow; otherwise the reason."""
        steers = op.body is not None or op.kind == "delete_var"
        supported = steers or isinstance(op.defn, Pointwise) or has(op.defn, "numpy")
        return "" if supported else f"{op.kind} has neither `compute` nor `numpy`"

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; the same plan always yields the same bytes.

        With `poison`, memory is filled with NaN or the smallest integer after the last step that
        needs it, so that a plan that frees it too early yields wrong results. With
        `check_numbers`, a step stops at the first op that computes NaN or infinity.
        """
        writer = ModuleWriter(plan.dims, plan.buffers)
        writer.expects_numbers = check_numbers
        return assemble(plan, writer, emit_step, STYLE, poison)


def emit_step(writer: ModuleWriter, step: Step) -> None:
    """Write comments that name the ops and their source lines, then the code of the step."""
    writer.comment_ops(step)
    first = step.ops[0]
    if first.kind == "delete_var":
        for value in (value for values in first.inputs.values() for value in values):
            writer.free(value)
    elif first.kind in BODIES:
        emit_body(writer, first, emit_step)
    elif any(value.type.is_open for value in first.values):
        emit_dynamic(writer, first)
    elif isinstance(first.defn, Pointwise):
        emit_pointwise(writer, step)
    elif len(step.ops) > 1:
        head, epilogue = split_anchor(writer, step)
        _emit_op(writer, head)
        emit_pointwise(writer, epilogue)
    else:
        _emit_op(writer, first)
    check_outputs(writer, step)


def _emit_op(writer: ModuleWriter, op: PlannedOp) -> None:
    """Write an op's own lowering, or a call of its reference implementation."""
    values = {
        slot: _operands(writer, op.defn, slot, values)
        for slot, values in {**op.inputs, **op.outputs}.items()
    }
    upcasts, results = upcast(writer, op, values) if reads_half(op) else (values, [])
    if isinstance(op.defn, GradOp) and (checked := values_to_check(writer, op)):
        write_checks(writer, op, checked)
    if has(op.defn, "lower"):
        call(op.defn, "lower", upcasts, writer)
    else:
        call_reference(writer, op, upcasts)
    cast_back(writer, results)


def _operands(writer: ModuleWriter, defn: OpDef, slot: str, values: Sequence[PlannedValue]) -> Any:
    declared = defn.slots[slot]
    operands = [ShapeOf(v) if declared.shape_only else writer.operand(v) for v in values]
    return declared.hold(operands)
