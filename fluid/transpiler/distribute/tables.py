"""Embedding tables whose rows trainers look up on servers, instead of holding them.

With `is_sparse`, a table is cut into blocks of rows like any parameter, and its lookups become one
`distributed_lookup_table`. With `is_distributed`, row r of the one table lies on
server r mod n: `split_ids`, `prefetch` and `merge_ids` look up, `split_ids` and `send` push.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.program import OpRole
from fluid.distributed.sharding import Table
from fluid.framework import Block, Operator, Program

__all__ = [
    "distributed_table",
    "insert_lookups",
    "remote_lookups",
    "shape_readers",
    "sparse_tables",
]

LOOKUPS = ("lookup_table", "lookup_table_v2")


def lookups(program: Program) -> list[Operator]:
    """The ops of the main block that look up rows in the forward pass."""
    return [op for op in program.global_block().ops if op.type in LOOKUPS]


def distributed_table(program: Program, endpoints: Sequence[str]) -> Table | None:
    """The table with `is_distributed`; None without one, RuntimeError for several."""
    distributed = [op for op in lookups(program) if op.attrs.get("is_distributed")]
    names = sorted({op.inputs["W"][0] for op in distributed})
    if len(names) > 1:
        raise RuntimeError(
            "a program can have one embedding table with is_distributed=True, but has "
            f"{', '.join(names)}; make the others is_sparse=True alone"
        )
    if not names:
        return None
    shape = program.global_block().var(names[0]).shape
    return Table(names[0], shape, tuple(endpoints))


def sparse_tables(program: Program) -> frozenset[str]:
    """The embedding tables whose gradients are rows: with `is_sparse` or `is_distributed`."""
    flags = ("is_sparse", "is_distributed")
    sparse_lookups = [op for op in lookups(program) if any(op.attrs.get(flag) for flag in flags)]
    return frozenset(op.inputs["W"][0] for op in sparse_lookups)


def remote_lookups(program: Program) -> frozenset[str]:
    """The tables that only remote lookups read, so that trainers need not hold them."""
    asked = [op for op in lookups(program) if op.attrs.get("remote_prefetch")]
    tables = {op.inputs["W"][0] for op in asked}
    asking = {id(op) for op in asked}
    updating = OpRole.OPTIMIZE | OpRole.LRSCHED
    for block in program.blocks:
        for op in block.ops:
            if id(op) in asking or op.role & updating or op.type in shape_readers():
                continue
            tables -= set(op.reads())
    return frozenset(tables)


def shape_readers() -> set[str]:
    """The ops that read only the shape of a table."""
    return {f"{kind}_grad" for kind in LOOKUPS}


def insert_lookups(
    block: Block,
    name: str,
    make: Callable[[int, Sequence[Operator]], None],
    kind: str,
    *,
    distributed: bool = False,
) -> None:
    """Replace the lookups of one table by ops that `make` inserts.

    They are inserted after the last op that writes ids, by `make(index, lookups)`.
    Raises ValueError if something reads the result of a lookup before that.
    """
    flag = "is_distributed" if distributed else "remote_prefetch"
    chosen = [
        op
        for op in block.ops
        if op.type in LOOKUPS and op.inputs["W"][0] == name and op.attrs.get(flag)
    ]
    for group in _alike(chosen):
        for op in group:
            block.remove_op(op.idx)
        ids = {id_name for op in group for id_name in op.inputs["Ids"]}
        outputs = {output for op in group for output in op.writes()}
        index = 1 + max(
            (i for i, op in enumerate(block.ops) if ids.intersection(op.writes())), default=-1
        )
        early = [op for op in block.ops[:index] if outputs.intersection(op.reads())]
        if early:
            raise ValueError(
                f"{kind}: {early[0].type} ({early[0].source}) reads rows of table {name!r} before "
                "all ids that are looked up in it are known; give one of the lookups a table of "
                "its own"
            )
        make(index, group)


def _alike(ops: Sequence[Operator]) -> list[list[Operator]]:
    """Groups of lookups with equal type and padding, which one op can replace."""
    groups: dict[tuple[str, object], list[Operator]] = {}
    for op in ops:
        groups.setdefault((op.type, op.attrs.get("padding_idx")), []).append(op)
    return list(groups.values())
