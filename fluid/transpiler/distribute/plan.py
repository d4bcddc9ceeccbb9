"""The sharding plan: which server holds which block of which parameter.

It follows from the program, the endpoints and the settings alone, so that trainers and servers
that build the same program agree without communicating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fluid.distributed.sharding import ShardingPlan, Shards, Table
from fluid.framework import Program
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.config import DistributeTranspilerConfig
from fluid.transpiler.distribute.slicing import row_slices
from fluid.transpiler.distribute.tables import distributed_table, remote_lookups
from fluid.transpiler.distribute.updates import Updates, needs_whole, parameter

__all__ = ["make_plan", "schedule_counters"]


def make_plan(
    program: Program,
    updates: Updates,
    endpoints: Sequence[str],
    trainers: int,
    synchronous: bool,
    config: DistributeTranspilerConfig,
) -> ShardingPlan:
    """The plan of a program for servers and a number of trainers.

    Raises ValueError for parameters of unknown shape, and RuntimeError for several tables with
    `is_distributed`.
    """
    table = distributed_table(program, endpoints)
    shards = _shards(program, updates, endpoints, config, table)
    if not config.slice_var_up:
        order = np.arange(len(shards))
        np.random.RandomState(program.random_seed).shuffle(order)
        shards = [shards[index] for index in order]
    counters = () if synchronous else schedule_counters(program, updates)
    return ShardingPlan(
        endpoints=tuple(endpoints),
        trainers=trainers,
        synchronous=synchronous,
        merges=synchronous or config.completely_not_async,
        mode=config.distributed_mode,
        runtime_split=config.runtime_split_send_recv,
        half_async=config.half_async,
        dc_asgd=config.enable_dc_asgd,
        shards=tuple(_placed(shards, endpoints, config)),
        counters=counters,
        table=table,
    )


def _shards(
    program: Program,
    updates: Updates,
    endpoints: Sequence[str],
    config: DistributeTranspilerConfig,
    table: Table | None,
) -> list[Shards]:
    """The slices of every parameter, not yet placed on servers."""
    remote = remote_lookups(program)
    shards: list[Shards] = []
    for update in updates.updates:
        if table is not None and update.param == table.name:
            continue
        whole = not config.slice_var_up or needs_whole(program, update)
        shape = parameter(program, update.param).shape
        count = 1 if whole else len(endpoints)
        slices = row_slices(update.param, shape, count, config.min_block_size)
        gradient = program.global_block().vars.get(update.gradient)
        sparse = gradient is not None and gradient.type == VarDesc.VarType.SELECTED_ROWS
        is_remote = update.param in remote
        shards.append(Shards(update.param, update.gradient, tuple(slices), sparse, is_remote))
    return shards


def _placed(
    shards: Sequence[Shards], endpoints: Sequence[str], config: DistributeTranspilerConfig
) -> list[Shards]:
    """The slices with the servers that `split_method` chooses for them."""
    dispatcher = config.dispatcher(list(endpoints))
    slices = [part for param_shards in shards for part in param_shards.slices]
    chosen = iter(dispatcher.dispatch(slices))
    return [
        replace(
            param_shards,
            slices=tuple(replace(part, endpoint=next(chosen)) for part in param_shards.slices),
        )
        for param_shards in shards
    ]


def schedule_counters(program: Program, updates: Updates) -> tuple[str, ...]:
    """The counters that the learning-rate schedule advances."""
    ops = program.global_block().ops
    schedule = [ops[index] for index in updates.schedule]
    return tuple(op.writes()[0] for op in schedule if op.type == "increment")
