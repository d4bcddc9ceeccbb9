"""Code for an op without a lowering: a call of its reference, copied into the module."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, cast

from compiler.codegen.module_writer import ModuleWriter, shape_text
from compiler.ir.opdef import GradOp, OpDef, listed, parameters, slot_of
from compiler.ir.program import GRAD
from compiler.plan import PlannedOp, PlannedValue


class ShapeOf:
    """An input of which only the shape is available; its data may have been freed."""

    def __init__(self, value: PlannedValue) -> None:
        self.type = value.type
        self.shape = value.type.shape

    def __str__(self) -> str:
        raise AssertionError("a shape-only slot has no array")


def pick(result: Any, slot: str) -> Any:
    """Return one output of a reference implementation: the only one, or one of a dict."""
    return result[slot] if hasattr(result, "keys") else result


def call_reference(writer: ModuleWriter, op: PlannedOp, values: Mapping[str, Any]) -> None:
    """Write `result = reference(attributes, …)` and a copy of each output to its memory."""
    owner, body = reference_body(op.defn)
    function = writer.function(getattr(type(owner), body), f"{op.kind}_reference")
    arguments = [
        f"{n}={_argument(values.get(slot_of(n)), kind)}"
        for n, kind in parameters(type(owner), body)
    ]
    writer.line(
        f"result = {function}({', '.join([attributes_name(writer, op.kind, owner), *arguments])})"
    )
    picker = writer.function(pick)
    for slot in op.outputs:
        part = f"{picker}(result, {result_key(op.defn, slot)!r})"
        for index, operand in enumerate(listed(values[slot])):
            item = f"{part}[{index}]" if op.defn.slots[slot].many else part
            writer.line(f"np.copyto({operand}, np.reshape({item}, {shape_text(operand.shape)}))")


def result_key(defn: OpDef, slot: str) -> str:
    """The key of an output in a reference result: gradients are named after the forward slot."""
    return slot.removesuffix(GRAD) if isinstance(defn, GradOp) else slot


def reference_body(defn: OpDef) -> tuple[OpDef, str]:
    """The definition and method name of an op's reference; a gradient's is in its forward op."""
    return (defn.origin, "grad") if isinstance(defn, GradOp) else (defn, "numpy")


def attributes_name(writer: ModuleWriter, kind: str, owner: OpDef) -> str:
    """Define a global that replaces the op's `self`; returns its name."""
    values = {name: repr(value) for name, value in owner.attributes.items()}
    if hasattr(owner, "callables"):
        values["callables"] = "globals().get('callables', ())"
    if hasattr(owner, "collective"):
        values["collective"] = "collective"
    if hasattr(owner, "parameter_server"):
        values["parameter_server"] = "globals().get('parameter_server')"
    if any(map(iskeyword, values)):
        listed = "**{" + ", ".join(f"{name!r}: {text}" for name, text in values.items()) + "}"
    else:
        listed = ", ".join(f"{name}={text}" for name, text in values.items())
    name = writer.names.make(f"{kind}_attributes")
    writer.globals.append(f"{name} = SimpleNamespace({listed})")
    return name


def _argument(value: Any, annotation: str) -> str:
    """Format an argument of a reference call: an array, a shape, a list of them, or None."""
    if isinstance(value, list):
        return f"[{', '.join(_argument(item, annotation) for item in cast('list[Any]', value))}]"
    if value is None:
        return "None"
    return shape_text(value.shape) if "Shape" in annotation else str(value)
