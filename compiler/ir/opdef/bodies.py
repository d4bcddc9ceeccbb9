"""The bodies of an op's class (`compute`, `numpy`, `lower`, …): found and called by slots.

A body names slots by its parameters, so what it reads is known from its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Protocol

from compiler.errors import CompileError
from compiler.ir.opdef.half_precision import mapped
from compiler.ir.program import GRAD

GRADIENT_BODIES = {
    "compute": "grad",
    "numpy": "grad",
    "lower": "lower_grad",
    "triton": "triton_grad",
    "infer": "infer_grad",
}
"""What the bodies of a gradient op are called in the class of its forward op."""


class HasBodies(Protocol):
    """An op: it knows which object has the code of a body, and under which name."""

    kind: ClassVar[str]

    def written_as(self, body: str) -> tuple[object, str]:
        """The op whose class has the code of a body, and the name it has there."""
        ...


def has(op: HasBodies, body: str) -> bool:
    """Whether the op has a body of this name: compute, numpy, lower, infer, grad_ops."""
    owner, name = op.written_as(body)
    return callable(getattr(type(owner), name, None))


def call(op: HasBodies, body: str, values: Mapping[str, Any], *first: Any) -> Any:
    """Call a body with `first` and then, for each parameter, the value of its slot.

    Raises CompileError where the op has no such body.
    """
    owner, name = op.written_as(body)
    if not has(op, body):
        raise CompileError(f"{op.kind} has no {name!r}")
    rest = parameters(type(owner), name)[len(first) :]
    return getattr(owner, name)(*first, **{n: _given(values, n, kind) for n, kind in rest})


def _given(values: Mapping[str, Any], name: str, annotation: str) -> Any:
    value = values.get(slot_of(name))
    return mapped(lambda v: v.shape, value) if annotation in ("Shape", "list[Shape]") else value


@cache
def parameters(cls: type, body: str) -> tuple[tuple[str, str], ...]:
    """Names and annotations of a body's parameters, `self` left out."""
    found = inspect.signature(getattr(cls, body)).parameters.values()
    return tuple((p.name, str(p.annotation)) for p in list(found)[1:])


def slot_of(parameter: str) -> str:
    """The slot of a body's parameter: `d_Out` is `Out@GRAD`."""
    return parameter.removeprefix("d_") + GRAD if parameter.startswith("d_") else parameter
