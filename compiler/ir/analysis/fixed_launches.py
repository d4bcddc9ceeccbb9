"""Which ops a CUDA graph can contain: it repeats launches with the arguments of their capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compiler.ir.analysis.placement import LIBRARY, TO_DEVICE, TO_HOST, TRITON
from compiler.ir.opdef import GradOp, OpDef
from compiler.ir.opdef.definition import Typed

_FREE = frozenset({TO_DEVICE, TO_HOST, "delete_var"})
"""Ops of the host that a graph contains, or that do nothing on a device."""


class PlacedOp(Protocol):
    """An op with a target: of a graph, or of a plan."""

    @property
    def kind(self) -> str:
        """Its type, such as `relu`."""
        ...

    @property
    def defn(self) -> OpDef:
        """Its definition."""
        ...

    @property
    def inputs(self) -> Mapping[str, Sequence[Typed]]:
        """What it reads, by slot."""
        ...

    @property
    def outputs(self) -> Mapping[str, Sequence[Typed]]:
        """What it writes, by slot."""
        ...

    @property
    def target(self) -> str | None:
        """The code generator it is assigned to."""
        ...


def why_not_fixed(op: PlacedOp) -> str:
    """Return why the launches of an op may differ between steps; empty if a CUDA graph can repeat
    them.
    """
    if op.kind in _FREE:
        return ""
    if op.target not in (TRITON, LIBRARY):
        return "it runs on the host"
    used = {**op.inputs, **op.outputs}
    if any(value.type.is_open for values in used.values() for value in values):
        return "it has sizes that depend on data"
    if hasattr(op.defn.origin if isinstance(op.defn, GradOp) else op.defn, "collective"):
        return "it exchanges values with other processes"
    slots = [slot for slot, values in used.items() if values and op.defn.slots[slot].on_host]
    return f"the host has its {' and '.join(slots)}" if slots else ""
