"""The startup program of a trainer: at its end it receives the servers' initial
parameters (B.5).
"""

from __future__ import annotations

from compiler.ir.program import OpRole
from fluid.distributed.sharding import DistributedMode, ShardingPlan
from fluid.framework import Block, Operator, Program
from fluid.transpiler.distribute.trainer import append_concats, append_recv, new_control

__all__ = ["rewrite_trainer_startup"]


def rewrite_trainer_startup(
    startup: Program, main: Program, origin: Program, plan: ShardingPlan, trainer_id: int
) -> None:
    """Receive the parameters, and initialise nothing that `main` does not use, in place.

    `main` is the trainer's program and `origin` what it was. Raises ValueError where a table that
    trainers do not hold is initialised by several ops, or by none.
    """
    block = startup.global_block()
    if plan.mode is not DistributedMode.GEO:
        _drop_unused(block, main, origin, plan)
    _add_counters(block, plan)
    dense = [shard for shard in plan.shards if not shard.is_remote]
    for shards in dense:
        append_recv(block, shards, plan, trainer_id, "", joined=False)
    attrs = {
        "endpoints": list(plan.endpoints),
        "trainer_id": trainer_id,
        "op_role": int(OpRole.RPC),
    }
    block.append_op("fetch_barrier", outputs={"Out": new_control(block)}, attrs=attrs)
    append_concats(block, dense, OpRole.FORWARD)
    for name in _tables(plan):
        _fake(block, name)


def _tables(plan: ShardingPlan) -> list[str]:
    """The parameters that trainers do not hold."""
    names = [shard.param for shard in plan.shards if shard.is_remote]
    return names if plan.table is None else [*names, plan.table.name]


def _drop_unused(block: Block, main: Program, origin: Program, plan: ShardingPlan) -> None:
    """Remove variables that only the updates use, which now run on servers."""
    still_used = {var.name for var in main.all_vars()} | set(plan.counters)
    dropped = {var.name for var in origin.all_vars()} - still_used
    for index in reversed(range(len(block.ops))):
        written = block.ops[index].writes()
        if written and dropped.issuperset(written):
            block.remove_op(index)
    used = {name for op in block.ops for name in [*op.reads(), *op.writes()]}
    for name in [name for name in block.vars if name in dropped and name not in used]:
        block.remove_var(name)


def _add_counters(block: Block, plan: ShardingPlan) -> None:
    """Set the step by which each trainer advances the learning-rate schedule: 1."""
    for counter in plan.counters:
        for trainer in range(plan.trainers):
            add_constant(block, plan.counter_name(counter, trainer), 1.0)


def add_constant(block: Block, name: str, value: float) -> Operator:
    """Declare an int64 [1] variable and prepend the op that initialises it."""
    block.create_var(name=name, shape=[1], dtype="int64", persistable=True)
    attrs: dict[str, object] = {"shape": [1], "dtype": int(block.var(name).dtype), "value": value}
    return block.prepend_op("fill_constant", outputs={"Out": name}, attrs=attrs)


def _fake(block: Block, name: str) -> None:
    """Skip the initialisation of a table, which is too large for a trainer."""
    makers = [op for op in block.ops if name in op.writes()]
    if len(makers) != 1:
        raise ValueError(
            f"table {name!r} must be initialised by one op of the startup program, but is by "
            f"{len(makers)}: {', '.join(op.type for op in makers) or 'none'}"
        )
    block.remove_op(makers[0].idx)
    attrs = {"shape": list(block.var(name).shape), "op_role": int(OpRole.FORWARD)}
    block.append_op("fake_init", outputs={"Out": name}, attrs=attrs)
