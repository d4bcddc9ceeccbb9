"""Placement: whether a value is in host or device memory. Derived from op targets, never stored.

Ops with target `triton` or `library` read and write device memory, except for slots that are
`on_host`: LoD and values that determine sizes. Feeds come from the host and results return to it;
`to_device` and `to_host` ops are inserted wherever a value crosses. State is in device memory if
any device op reads or writes any of its versions.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var

TRITON = "triton"
"""The target of ops that run on the device."""

LIBRARY = "library"
"""The target of ops that a library of the device's vendor computes."""

NATIVE = "native"
"""The target of ops that run on the CPU as machine code."""

TO_DEVICE, TO_HOST = "to_device", "to_host"


def runs_on_device(op: Op) -> bool:
    """Return whether an op runs on the device."""
    return op.target in (TRITON, LIBRARY)


def is_there(op: Op, slot: str) -> bool:
    """Return whether the values in a slot of an op are in device memory."""
    return runs_on_device(op) and not op.defn.slots[slot].on_host


def device_writes(op: Op) -> list[Var]:
    """List the vars that an op writes in device memory."""
    return [var for slot, vars in op.outputs.items() if is_there(op, slot) for var in vars]


def device_reads(op: Op) -> list[Var]:
    """List the vars whose data an op reads in device memory."""
    needed = {*op.needs_data()}
    on_device = [var for slot, vars in op.inputs.items() if is_there(op, slot) for var in vars]
    return [var for var in on_device if var in needed]


def device_vars(g: Graph) -> frozenset[Var]:
    """Return the vars whose data is in device memory."""
    there = [op for op in g.ops() if runs_on_device(op)]
    if not there:
        return frozenset()
    written = {var for op in there for var in device_writes(op)}
    written |= {var for op in g.ops() if op.kind == TO_DEVICE for var in op.writes()}
    touched = {var.storage for op in there for var in [*device_reads(op), *device_writes(op)]}
    state = (var for var in g.vars() if var.role == "param" and var.storage in touched)
    return frozenset({*written, *state})
