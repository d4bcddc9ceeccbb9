"""Checks that the operands of a gradient op belong together.

A gradient op reads inputs of its forward op, outputs that the forward op computed, and gradients of
outputs. The outputs, and the gradients, have the shapes that the forward op infers from its inputs;
an output and its gradient have one shape. Kernels of gradients rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from compiler.errors import ShapeError
from compiler.ir.opdef.definition import GradOp, OpDef, listed
from compiler.ir.opdef.size_comparison import differ, shapes_differ
from compiler.ir.opdef.slot_values import slot_reads
from compiler.ir.opdef.slots import Slot
from compiler.ir.program import GRAD
from compiler.ir.types import TensorType

X_SHAPE = "XShape"
"""An output without elements, with the sizes of X, which gradients read in place of X."""


def check_gradient_operands(defn: GradOp, types: Mapping[str, Any]) -> None:
    """Raise ShapeError if an operand of a gradient op has another shape than in the forward op."""
    inferred = _inferred(defn, types)
    for slot in (slot for slot in defn.forward.outputs().values() if not slot.companion):
        expected = inferred.get(slot.name) or types.get(slot.name)
        for name in (slot.name, slot.name + GRAD):
            pairs = zip(listed(expected), listed(types.get(name)), strict=False)
            for place, (output, gradient) in enumerate(pairs):
                if output is not None and gradient is not None and shapes_differ(output, gradient):
                    index = f"[{place}]" if slot.many else ""
                    raise ShapeError(f"{defn.kind}: {name}{index} is {gradient}, expected {output}")


def _inferred(defn: GradOp, types: Mapping[str, Any]) -> Mapping[str, Any]:
    """Infer the forward op's outputs; nothing if the gradient op lacks inputs they depend on."""
    known_types = {**types, **_inputs_by_x_shape(defn, types), **_inputs_by_likeness(defn, types)}
    inputs = defn.forward.inputs()
    if any(_is_missing(inputs[name], known_types, defn) for name in _inferred_from(defn.forward)):
        return {}
    return defn.origin.infer_types({slot: known_types.get(slot) for slot in inputs})


@cache
def _inferred_from(forward: type[OpDef]) -> list[str]:
    """Return the inputs that an op's outputs are inferred from."""
    if forward.infer_types is not OpDef.infer_types:
        return list(forward.inputs())
    names = slot_reads(forward, "infer").names
    return [slot for slot in forward.inputs() if slot in names]


def _is_missing(slot: Slot, types: Mapping[str, Any], defn: GradOp) -> bool:
    """Return whether a gradient op lacks an input of its forward op that sizes depend on."""
    if types.get(slot.name):
        return False
    return not slot.optional or slot.needed or (slot.name not in defn.slots and slot.no_grad)


def _inputs_by_x_shape(defn: GradOp, types: Mapping[str, Any]) -> dict[str, TensorType]:
    """Return the type of the input X that XShape stands for; ShapeError if it cannot be one."""
    x_shape = types.get(X_SHAPE)
    if x_shape is None or types.get("X") is not None or X_SHAPE not in defn.forward.outputs():
        return {}
    axis = defn.forward.x_shape_axis
    if not x_shape.rank or differ(x_shape.shape[axis], 0):
        raise ShapeError(f"{defn.kind}: {X_SHAPE} is {x_shape}, expected 0 on axis {axis}")
    return {"X": x_shape.with_shape(x_shape.shape[:-1] if axis else x_shape.shape[1:])}


def _inputs_by_likeness(defn: GradOp, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of inputs that the gradient op lacks, by operands of the same shape."""
    pairs = defn.forward.grad_like.items()
    return {slot: types[like] for slot, like in pairs if slot not in defn.slots and types.get(like)}
