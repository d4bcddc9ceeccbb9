"""Code around an op that reads half precision: it computes in float32 scratch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from compiler.codegen.module_writer import ModuleWriter, NumpyOperand
from compiler.ir.types import HALVES, DType
from compiler.plan import PlannedOp

Pairs = list[tuple[NumpyOperand, NumpyOperand]]
"""Half-precision values, each with its float32 scratch."""


def reads_half(op: PlannedOp) -> bool:
    """True if an op computes with half-precision floats, and does not merely move them."""
    values = [
        value
        for slot, slot_values in op.inputs.items()
        for value in slot_values
        if not op.defn.slots[slot].shape_only
    ]
    arrays = any(value.type.is_array for value in op.values)
    return op.defn.computes_in_fp32 and not arrays and any(v.type.dtype in HALVES for v in values)


def upcast(
    writer: ModuleWriter, op: PlannedOp, values: Mapping[str, Any]
) -> tuple[dict[str, Any], Pairs]:
    """Upcast all operands to float32 scratch; also returns the results to cast back."""
    inputs: Pairs = []
    results: Pairs = []
    upcasts: dict[str, Any] = {}
    for slot, value in values.items():
        pairs = results if slot in op.outputs else inputs
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        held = [_upcast_operand(writer, item, pairs) for item in items]
        upcasts[slot] = held if isinstance(value, list) else held[0]
    for half, scratch in inputs:
        writer.line(f"np.copyto({scratch}, {half})")
    return upcasts, results


def cast_back(writer: ModuleWriter, results: Pairs) -> None:
    """Write the casts of float32 results back to half precision."""
    for half, scratch in results:
        writer.line(f"np.copyto({half}, {scratch})")


def _upcast_operand(writer: ModuleWriter, operand: Any, pairs: Pairs) -> Any:
    if not isinstance(operand, NumpyOperand) or operand.type.dtype not in HALVES:
        return operand
    scratch_operand = next((scratch for half, scratch in pairs if half is operand), None)
    if scratch_operand is None:
        scratch_operand = writer.scratch(operand.shape, DType.FP32)
        pairs.append((operand, scratch_operand))
    return scratch_operand
