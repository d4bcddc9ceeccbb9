"""Lookups in tables that servers hold, and their gradients, in the program of a trainer."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.program import OpRole
from fluid.distributed.sharding import ShardingPlan, Shards, Table
from fluid.framework import Block, Operator
from fluid.recording.annotations import Attributes, Slots
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.names import control_name
from fluid.transpiler.distribute.tables import insert_lookups

__all__ = ["replace_lookups", "send_table"]


def replace_lookups(block: Block, plan: ShardingPlan, trainer_id: int) -> None:
    """Replace lookups in remote tables by requests. Raises ValueError as `insert_lookups` does."""
    for shards in plan.shards:
        if shards.is_remote:
            _replace_sparse(block, shards, trainer_id)
    if plan.table is not None:
        _replace_distributed(block, plan.table, trainer_id)


def _replace_sparse(block: Block, shards: Shards, trainer_id: int) -> None:
    def make(index: int, group: Sequence[Operator]) -> None:
        attrs = {
            "table_names": [part.name for part in shards.slices],
            "height_sections": shards.rows,
            "endpoints": shards.endpoints,
            "padding_idx": group[0].attrs.get("padding_idx", -1),
            "trainer_id": trainer_id,
            "lookup_table_version": group[0].type,
            "dtype": int(block.var(shards.param).dtype),
            "op_role": int(OpRole.FORWARD),
        }
        inputs = {"Ids": [op.inputs["Ids"][0] for op in group], "W": shards.param}
        outputs = {"Outputs": [op.outputs["Out"][0] for op in group]}
        slots = {"inputs": inputs, "outputs": outputs}
        block.insert_op(index, "distributed_lookup_table", **slots, attrs=attrs)

    insert_lookups(block, shards.param, make, "distributed_lookup_table")


def _replace_distributed(block: Block, table: Table, trainer_id: int) -> None:
    """`split_ids`, `prefetch` and `merge_ids` in place of the lookups in a table."""
    pairs = [table.prefetched(number) for number in range(len(table.endpoints))]
    asked, answered = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    dtype = block.var(table.name).dtype
    for ids, rows in pairs:
        block.create_var(name=ids, shape=[-1, 1], dtype="int64", persistable=False)
        block.create_var(name=rows, shape=[-1, table.shape[1]], dtype=dtype, persistable=False)

    def make(index: int, group: Sequence[Operator]) -> None:
        ids = [op.inputs["Ids"][0] for op in group]
        outputs = [op.outputs["Out"][0] for op in group]
        steps: list[tuple[str, Slots, Slots, Attributes]] = [
            ("split_ids", {"Ids": ids}, {"Out": asked}, {}),
            ("prefetch", {"X": asked}, {"Out": answered}, _prefetch_attrs(table, trainer_id)),
            ("merge_ids", {"Ids": ids, "Rows": asked, "X": answered}, {"Out": outputs}, {}),
        ]
        for place, (kind, read, written, attrs) in enumerate(steps, index):
            block.insert_op(place, kind, inputs=read, outputs=written, attrs=attrs)

    insert_lookups(block, table.name, make, "prefetch", distributed=True)


def _prefetch_attrs(table: Table, trainer_id: int) -> dict[str, object]:
    return {
        "epmap": list(table.endpoints),
        "trainer_id": trainer_id,
        "op_role": int(OpRole.RPC),
    }


def send_table(block: Block, plan: ShardingPlan, trainer_id: int) -> str:
    """Send the rows of the gradient of the table to the servers that hold them; a control variable.

    Raises ValueError where no op computes the gradient.
    """
    table = plan.table
    assert table is not None
    indices = [i for i, op in enumerate(block.ops) if table.gradient in op.writes()]
    if not indices:
        raise ValueError(f"no op computes {table.gradient!r}, the gradient of table {table.name!r}")
    servers = range(len(table.endpoints))
    named = [plan.sent_name(table.gradient, trainer_id) + f".pserver_{i}" for i in servers]
    for name in named:
        block.create_var(
            name=name,
            type=VarDesc.VarType.SELECTED_ROWS,
            shape=table.shape,
            dtype=block.var(table.name).dtype,
            persistable=False,
        )
    slots = {"inputs": {"Ids": table.gradient}, "outputs": {"Out": named}}
    block.insert_op(indices[-1] + 1, "split_ids", **slots, attrs={"op_role": int(OpRole.DIST)})
    control = control_name(block)
    block.create_var(name=control, shape=[0], dtype="float32", persistable=False)
    attrs = {
        "epmap": list(table.endpoints),
        "op_role": int(OpRole.RPC),
        "op_role_var": [table.name, table.gradient],
        "share": 1.0 / plan.trainers if plan.merges else 1.0,
    }
    slots = {"inputs": {"X": named}, "outputs": {"Out": control}}
    block.insert_op(indices[-1] + 2, "send", **slots, attrs=attrs)
    return control
