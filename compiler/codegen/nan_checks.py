"""Code that stops a step at the first op whose result is NaN or infinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.codegen.control_flow import BODIES
from compiler.codegen.module_writer import ModuleWriter
from compiler.plan import Step, StorageKind

_UNWRITTEN = BODIES | {"delete_var"}
"""Ops that may leave their outputs unwritten; the ops in their bodies are checked there."""


def expect_numbers(array: Any, kind: str, name: str) -> None:
    """Raise FloatingPointError naming op and tensor if an array holds NaN or infinity."""
    host = np.asarray(array.float().cpu() if hasattr(array, "cpu") else array)
    nan, infinite = int(np.isnan(host).sum()), int(np.isinf(host).sum())
    if nan or infinite:
        raise FloatingPointError(
            f"{kind}: {nan} NaN and {infinite} infinite among {host.size} numbers: "
            f"in [op={kind}] [tensor={name}] find nan or inf"
        )


def check_outputs(writer: ModuleWriter, step: Step) -> None:
    """Write a check of every float output of a step's ops, if `writer` expects numbers."""
    if not writer.expects_numbers:
        return
    check = writer.function(expect_numbers)
    for op in (op for op in step.ops if op.kind not in _UNWRITTEN):
        for value in (value for values in op.outputs.values() for value in values):
            is_float = value.type.dtype.is_float and not value.type.is_array
            if is_float and value.place is not StorageKind.INNER:
                writer.line(f"{check}({writer.operand(value)}, {op.kind!r}, {value.label!r})")
