"""Code that compares native steps with the reference implementations of their ops.

The module imports `compiler.debugging.step_checks`; the step calls it before and after the kernels
of each step.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from compiler.codegen.module_writer import shape_text
from compiler.codegen.native.checks.reference_rows import (
    CHECKS,
    has_plain_attributes,
    reference_row,
    step_inputs,
    step_outputs,
)
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.plan import Step


@contextmanager
def compared_with_reference(writer: NativeModuleWriter, step: Step) -> Generator[None]:
    """Write the checks of a step around its kernels, which are written inside.

    Nothing is written if the plan is not compared, or the step writes no memory.
    """
    outputs = list(step_outputs(step).values()) if writer.compares else []
    opaque = [op.kind for op in step.ops if not has_plain_attributes(op.defn)]
    writer.uncompared |= dict.fromkeys(opaque, "its attributes are not plain data")
    if not outputs or opaque:
        yield
        return
    for op in step.ops:
        writer.body.comment(op.comment)
    inputs = step_inputs(step)
    checked, before = writer.names.make("checked"), writer.names.make("before")
    arguments = [
        shape_text(value.type.shape) if is_shape else str(writer.operand(value))
        for value, is_shape in inputs
    ]
    writer.line(f"{before} = {checked}.before({', '.join(arguments)})")
    first = len(writer.costs)
    yield
    kernels = tuple(dict.fromkeys(call.name for call in writer.costs[first:]))
    writer.globals.append(f"{checked} = {CHECKS}.step({reference_row(step)!r}, {kernels!r})")
    writer.line(
        f"{checked}.after({', '.join([before, *(str(writer.operand(v)) for v in outputs)])})"
    )
