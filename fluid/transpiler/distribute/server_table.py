"""Blocks of a server for an embedding table with `is_distributed`."""

from __future__ import annotations

import warnings

from compiler.ir.program import BlockRef, OpRole
from fluid.distributed.sharding import ShardingPlan, Table
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.server_builder import ServerBuilder

__all__ = ["PATH", "add_table_blocks"]

PATH = "kLookupTablePath"
"""The variable with the directory that `checkpoint_notify` names."""


def add_table_blocks(server: ServerBuilder, table: Table, parent: int) -> None:
    """Blocks that update a table, look rows up in it and save it."""
    rows = (table.rows_here, table.shape[1])
    dtype = server.source.var(table.name).dtype
    server.block.create_var(name=table.name, shape=rows, dtype=dtype, persistable=True)
    _add_update(server, table, parent, rows)
    _add_prefetch(server, table, parent)
    _add_checkpoint(server, table, parent)


def _add_update(server: ServerBuilder, table: Table, parent: int, rows: tuple[int, ...]) -> None:
    update = server.by_param[table.name]
    ops = [server.source.ops[index] for index in update.ops]
    step = next(op for op in ops if "LearningRate" in op.inputs)
    if step.type != "sgd":
        warnings.warn(
            f"the table {table.name!r} with is_distributed=True is updated by sgd, not by "
            f"{step.type}: servers remember nothing of its rows; use is_sparse=True instead",
            stacklevel=2,
        )
    block = server.program.add_block(parent)
    number = server.plan.endpoints.index(server.endpoint)
    names = _sent_names(server.plan, table, number)
    for name in dict.fromkeys([*names, table.gradient]):
        server.block.create_var(
            name=name,
            type=VarDesc.VarType.SELECTED_ROWS,
            persistable=name == table.gradient,
            shape=rows,
            dtype=server.source.var(table.name).dtype,
        )
    gradient = names[0]
    if server.plan.merges:
        gradient = table.gradient
        block.append_op("sum", inputs={"X": names}, outputs={"Out": gradient})
    rate = step.inputs["LearningRate"][0]
    server.declare(rate, initialised=True)
    inputs = {"Param": table.name, "Grad": gradient, "LearningRate": rate}
    attrs = {"op_role": int(OpRole.OPTIMIZE)}
    block.append_op("sgd", inputs=inputs, outputs={"ParamOut": table.name}, attrs=attrs)
    server.received += names
    server.grad_blocks.append(f"{gradient}:{block.idx}")
    server.sparse.append(f"{gradient}:{table.name}")
    server.optimize.append(BlockRef(block.idx))


def _sent_names(plan: ShardingPlan, table: Table, number: int) -> list[str]:
    """The names under which trainers send a server its rows of the gradient."""
    if not plan.merges:
        return [f"{table.gradient}.pserver_{number}"]
    trainers = range(plan.trainers)
    return [f"{plan.sent_name(table.gradient, t)}.pserver_{number}" for t in trainers]


def _add_prefetch(server: ServerBuilder, table: Table, parent: int) -> None:
    number = server.plan.endpoints.index(server.endpoint)
    ids, rows = table.prefetched(number)
    dtype = server.source.var(table.name).dtype
    server.block.create_var(name=ids, shape=[-1, 1], dtype="int64", persistable=False)
    server.block.create_var(name=rows, shape=[-1, table.shape[1]], dtype=dtype, persistable=False)
    block = server.program.add_block(parent)
    attrs = {
        "is_sparse": True,
        "is_distributed": True,
        "padding_idx": -1,
        "servers": len(table.endpoints),
    }
    inputs = {"W": table.name, "Ids": ids}
    block.append_op("lookup_sparse_table", inputs=inputs, outputs={"Out": rows}, attrs=attrs)
    server.attrs["prefetch_var_name_to_block_id"] = [f"{ids}:{block.idx}"]


def _add_checkpoint(server: ServerBuilder, table: Table, parent: int) -> None:
    server.block.create_var(name=PATH, type=VarDesc.VarType.RAW, persistable=True)
    block = server.program.add_block(parent)
    block.append_op("save", inputs={"X": table.name}, attrs={"file_path": "none"})
    server.attrs["checkpint_block_id"] = block.idx
