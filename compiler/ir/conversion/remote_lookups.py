"""Ops on rows of tables on parameter servers, selected by attributes of release 1.8.5.

A lookup, `nce` or `hierarchical_sigmoid` with `remote_prefetch` and `table_names` fetches its rows
from the servers `epmap`. In a program only the attributes differ; in a graph such ops have other
types.
"""

from __future__ import annotations

from typing import Any

from compiler.errors import CompileError
from compiler.ir.program import OpDesc

__all__ = ["as_remote", "is_remote"]

LOOKUPS = ("lookup_table", "lookup_table_v2")
LOSSES = {"nce": "remote_nce", "hierarchical_sigmoid": "remote_hierarchical_sigmoid"}


def is_remote(op: OpDesc) -> bool:
    """Return whether an op fetches rows of its table from servers."""
    return bool(op.attrs.get("remote_prefetch") and op.attrs.get("table_names"))


def as_remote(op: OpDesc) -> OpDesc:
    """Return the graph op for an op that fetches rows from servers; any other op unchanged.

    Raises CompileError for the gradient of a loss, which needs rows of the table as well.
    """
    if not is_remote(op):
        return op
    if op.type in LOOKUPS:
        return _lookup(op)
    if op.type in LOSSES:
        outputs = {slot: names for slot, names in op.outputs.items() if slot != "W_Out"}
        return OpDesc(LOSSES[op.type], op.inputs, outputs, op.attrs, op.source)
    if op.type.removesuffix("_grad") in LOSSES:
        raise CompileError(
            f"{op.type} needs rows of {op.attrs['table_names'][0]!r}, which is on a parameter "
            "server",
            source=op.source,
            hint="train by DistributeTranspiler, whose trainers receive this parameter",
        )
    return op


def _lookup(op: OpDesc) -> OpDesc:
    """Return a `distributed_lookup_table` for one lookup."""
    names = ("table_names", "height_sections", "trainer_id", "padding_idx", "op_role")
    attrs: dict[str, Any] = {name: op.attrs[name] for name in names if name in op.attrs}
    attrs |= {"endpoints": op.attrs.get("epmap", []), "lookup_table_version": op.type}
    inputs = {"Ids": op.inputs["Ids"], "W": op.inputs["W"]}
    outputs = {"Outputs": op.outputs["Out"]}
    return OpDesc("distributed_lookup_table", inputs, outputs, attrs, op.source)
