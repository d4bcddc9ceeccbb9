"""Activations selected by name, as steps of composite ops, and their gradients."""

from __future__ import annotations

from compiler.errors import BadAttribute
from compiler.ir.opdef import find
from compiler.ir.opdef.composite import CompositeSteps
from compiler.ir.program import GRAD

NOTHING = ("", "identity", "linear")
"""Attribute values that mean no activation."""


def activate(steps: CompositeSteps, kind: str, name: str) -> str:
    """Append an activation; return the name of its result (`name` itself if there is none)."""
    return name if kind in NOTHING else steps(kind, X=name)


def activation_gradient(steps: CompositeSteps, kind: str, x: str, out: str, gradient: str) -> str:
    """Append the gradient op of an activation; return the name of the gradient of `x`."""
    cls = find(kind).grad_class
    assert cls is not None
    operands = {"X": x, "Out": out, "Out" + GRAD: gradient}
    return steps(cls.kind, **{slot: operands[slot] for slot in cls.inputs()})


def require_one_of(op: str, name: str, value: str, accepted: tuple[str, ...]) -> None:
    """Raise BadAttribute unless an attribute is one of the accepted strings."""
    if value not in accepted:
        listed = ", ".join(map(repr, accepted))
        raise BadAttribute(f"{op}: attribute {name!r} is {value!r}, expected one of {listed}")
