"""Calling the bodies of an op class (`compute`, `infer`, `lower`, …) with the values of slots.

The parameters of `compute`, `numpy` and `grad` are named after slots, so their signatures declare
what they read; the other bodies take all slots as one object, `Slots`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Protocol

from compiler.errors import CompileError, MissingSlot
from compiler.ir.opdef.half_precision import map_value
from compiler.ir.opdef.kernel_builder import KernelSlots
from compiler.ir.opdef.slot_values import Slots, slot_of
from compiler.ir.opdef.slots import Slot

GRADIENT_BODIES = {
    "compute": "grad",
    "numpy": "grad",
    "lower": "lower_grad",
    "check_values": "check_values",
    "kernel": "kernel_grad",
    "infer": "infer_grad",
}
"""The methods of the forward op's class that implement the bodies of its gradient op."""


NAMED = frozenset({"compute", "grad", "measure", "numpy"})
"""The methods whose parameters are named after slots."""
_PRESENT = "Array"
"""The annotation of parameters that cannot be None; `Value` of a `compute` body may be."""


class HasBodies(Protocol):
    """An op that can locate the implementation of a body."""

    kind: ClassVar[str]
    slots: ClassVar[dict[str, Slot]]

    def body_owner(self, body: str) -> tuple[HasBodies, str]:
        """Return the op whose class implements a body, and the method's name there."""
        ...


def has(op: HasBodies, body: str) -> bool:
    """Return whether the op implements a body: compute, numpy, lower, infer, grad_ops."""
    owner, name = op.body_owner(body)
    return callable(getattr(type(owner), name, None))


def call(op: HasBodies, body: str, values: Mapping[str, Any], *first: Any) -> Any:
    """Call a body with the arguments `first` and the values of its slots.

    Raises CompileError if the op does not implement the body, and MissingSlot if there is nothing
    in an optional slot that this body requires.
    """
    owner, name = op.body_owner(body)
    if not has(op, body):
        raise CompileError(f"{op.kind} has no {name!r}")
    if name not in NAMED:
        declared = op.slots if owner is op else {**owner.slots, **op.slots}
        slots = KernelSlots if body == "kernel" else Slots
        return getattr(owner, name)(*first, slots(op.kind, declared, values))
    rest = parameters(type(owner), name)[len(first) :]
    kwargs = {n: _given(values, n, kind) for n, kind in rest}
    for parameter, annotation in rest:
        if kwargs[parameter] is None and annotation == _PRESENT:
            raise MissingSlot(f"{op.kind} needs {slot_of(parameter)}, which it was not passed")
    return getattr(owner, name)(*first, **kwargs)


def _given(values: Mapping[str, Any], name: str, annotation: str) -> Any:
    value = values.get(slot_of(name))
    return map_value(lambda v: v.shape, value) if annotation in ("Shape", "list[Shape]") else value


@cache
def parameters(cls: type, body: str) -> tuple[tuple[str, str], ...]:
    """Return the names and annotations of a body's parameters, without `self`."""
    signature = inspect.signature(getattr(cls, body)).parameters.values()
    return tuple((p.name, str(p.annotation)) for p in list(signature)[1:])
