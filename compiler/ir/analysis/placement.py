"""Which side a value is on: the host's memory, or the device's. Derived from targets, never stored.

Ops with the target `triton` read and write device memory, but for slots that are `on_host`: LoD,
and what tells sizes. Feeds come from the host and results go back to it; `to_device` and `to_host`
stand wherever a value crosses. State lives on the device if any op there reads or writes it,
through all its versions.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var

TRITON = "triton"
"""The target of ops that run on the device."""

TO_DEVICE, TO_HOST = "to_device", "to_host"


def runs_on_device(op: Op) -> bool:
    """True for the ops of kernels."""
    return op.target == TRITON


def is_there(op: Op, slot: str) -> bool:
    """True where what stands in a slot of an op is in device memory."""
    return runs_on_device(op) and not op.defn.slots[slot].on_host


def made_there(op: Op) -> list[Var]:
    """The vars that an op writes in device memory."""
    return [var for slot, vars in op.outputs.items() if is_there(op, slot) for var in vars]


def read_there(op: Op) -> list[Var]:
    """The vars whose data an op reads in device memory."""
    needed = {*op.needs_data()}
    held = [var for slot, vars in op.inputs.items() if is_there(op, slot) for var in vars]
    return [var for var in held if var in needed]


def device_vars(g: Graph) -> frozenset[Var]:
    """The vars whose data is in device memory."""
    there = [op for op in g.ops() if runs_on_device(op)]
    if not there:
        return frozenset()
    made = {var for op in there for var in made_there(op)}
    made |= {var for op in g.ops() if op.kind == TO_DEVICE for var in op.writes()}
    touched = {var.storage for op in there for var in [*read_there(op), *made_there(op)]}
    state = (var for var in g.vars() if var.role == "param" and var.storage in touched)
    return frozenset({*made, *state})
