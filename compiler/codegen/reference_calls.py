"""Code for an op that has no lowering: its meaning, carried into the module and called."""

from __future__ import annotations

from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, cast

from compiler.codegen.bind_and_run import Frame, shape_text
from compiler.ir.opdef import GradOp, OpDef, listed, parameters, slot_of
from compiler.ir.program import GRAD
from compiler.plan import PlannedOp, Value


class ShapeOf:
    """An input of which only the shape may be asked: its data may be gone."""

    def __init__(self, value: Value) -> None:
        self.type = value.type
        self.shape = value.type.shape

    def __str__(self) -> str:
        raise AssertionError("a shape-only slot has no array")


def pick(result: Any, slot: str) -> Any:
    """One output of what a meaning returned: the sole one, or one of a dict."""
    return result[slot] if hasattr(result, "keys") else result


def call_meaning(frame: Frame, op: PlannedOp, values: Mapping[str, Any]) -> None:
    """Write `result = meaning(attributes, …)` and a copy of each output to its place."""
    owner, body = body_of(op.defn)
    function = frame.function(getattr(type(owner), body), f"{op.kind}_meaning")
    given = [
        f"{n}={_argument(values.get(slot_of(n)), kind)}"
        for n, kind in parameters(type(owner), body)
    ]
    frame.line(f"result = {function}({', '.join([attributes_of(frame, op.kind, owner), *given])})")
    picker = frame.function(pick)
    for slot in op.outputs:
        part = f"{picker}(result, {result_key(op.defn, slot)!r})"
        for index, operand in enumerate(listed(values[slot])):
            item = f"{part}[{index}]" if op.defn.slots[slot].many else part
            frame.line(f"np.copyto({operand}, np.reshape({item}, {shape_text(operand.shape)}))")


def result_key(defn: OpDef, slot: str) -> str:
    """The name a meaning gives an output: gradients go by the forward slot's."""
    return slot.removesuffix(GRAD) if isinstance(defn, GradOp) else slot


def body_of(defn: OpDef) -> tuple[OpDef, str]:
    """Where an op's meaning is written: in its class, or in that of its forward op."""
    return (defn.origin, "grad") if isinstance(defn, GradOp) else (defn, "numpy")


def attributes_of(frame: Frame, kind: str, owner: OpDef) -> str:
    """The name of a global that stands for the op's `self`."""
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
    name = frame.names.make(f"{kind}_attributes")
    frame.globals.append(f"{name} = SimpleNamespace({listed})")
    return name


def _argument(value: Any, annotation: str) -> str:
    """One argument of a meaning: an array, a shape, a list of them, or None."""
    if isinstance(value, list):
        return f"[{', '.join(_argument(item, annotation) for item in cast('list[Any]', value))}]"
    if value is None:
        return "None"
    return shape_text(value.shape) if "Shape" in annotation else str(value)
