"""Code around an op that reads floats of two bytes: it computes in float32, in scratch beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from compiler.codegen.bind_and_run import Frame, NumpyOperand
from compiler.ir.types import HALVES, DType
from compiler.plan import PlannedOp

Pairs = list[tuple[NumpyOperand, NumpyOperand]]
"""Values of half precision, each with the scratch that stands for it."""


def reads_half(op: PlannedOp) -> bool:
    """Whether an op computes with floats of two bytes, and is not one that only moves them."""
    values = [
        value
        for slot, held in op.inputs.items()
        for value in held
        if not op.defn.slots[slot].shape_only
    ]
    arrays = any(value.type.is_array for value in op.values)
    return op.defn.computes_in_fp32 and not arrays and any(v.type.dtype in HALVES for v in values)


def widened(frame: Frame, op: PlannedOp, values: Mapping[str, Any]) -> tuple[dict[str, Any], Pairs]:
    """What stands in the slots in float32, copied there; and the results to bring back."""
    inputs: Pairs = []
    results: Pairs = []
    wide: dict[str, Any] = {}
    for slot, value in values.items():
        pairs = results if slot in op.outputs else inputs
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        held = [_wide(frame, each, pairs) for each in items]
        wide[slot] = held if isinstance(value, list) else held[0]
    for half, scratch in inputs:
        frame.line(f"np.copyto({scratch}, {half})")
    return wide, results


def narrow(frame: Frame, results: Pairs) -> None:
    """Round results to where they belong."""
    for half, scratch in results:
        frame.line(f"np.copyto({half}, {scratch})")


def _wide(frame: Frame, operand: Any, pairs: Pairs) -> Any:
    if not isinstance(operand, NumpyOperand) or operand.type.dtype not in HALVES:
        return operand
    made = next((scratch for half, scratch in pairs if half is operand), None)
    if made is None:
        made = frame.scratch(operand.shape, DType.FP32)
        pairs.append((operand, made))
    return made
