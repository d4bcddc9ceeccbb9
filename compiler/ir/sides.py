"""Which side a value is on: the host's memory, or the device's. Derived from targets, never stored.

Ops with the target `triton` read and write device memory. Feeds come from the host and results go
back to it; `to_device` and `to_host` stand wherever a value crosses. State lives on the device if
any op there reads or writes it, through all its versions.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var

TRITON = "triton"
"""The target of ops that run on the device."""

TO_DEVICE, TO_HOST = "to_device", "to_host"


def runs_on_device(op: Op) -> bool:
    """True for the ops of kernels."""
    return op.target == TRITON


def device_vars(g: Graph) -> frozenset[Var]:
    """The vars whose data is in device memory."""
    there = [op for op in g.ops() if runs_on_device(op)]
    if not there:
        return frozenset()
    made = {var for op in there for var in op.writes()}
    made |= {var for op in g.ops() if op.kind == TO_DEVICE for var in op.writes()}
    touched = {var.storage for op in there for var in [*op.needs_data(), *op.writes()]}
    state = (var for var in g.vars() if var.role == "param" and var.storage in touched)
    return frozenset({*made, *state})
