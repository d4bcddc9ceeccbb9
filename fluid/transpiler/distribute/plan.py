"""The sharding plan: which server holds which block of which parameter.

It follows from the program, the endpoints and the settings alone, so that trainers and servers
that build the same program agree without communicating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluid.framework import Program
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.config import DistributedMode, DistributeTranspilerConfig
from fluid.transpiler.distribute.slicing import Slice, row_slices
from fluid.transpiler.distribute.tables import Table, distributed_table, remote_lookups
from fluid.transpiler.distribute.updates import Updates, needs_whole, parameter

__all__ = ["Shards", "ShardingPlan", "make_plan", "schedule_counters"]

COUNTER_SUFFIX = ".trainer_"


@dataclass(frozen=True)
class Shards:
    """The slices of one parameter, and how its gradient reaches them.

    `gradient` is the variable that trainers send. `is_sparse`: it has row indices;
    `is_remote`: trainers look up rows of the parameter and never hold it.
    """

    param: str
    gradient: str
    slices: tuple[Slice, ...]
    is_sparse: bool
    is_remote: bool

    @property
    def rows(self) -> list[int]:
        """The number of rows of each slice."""
        return [slice_.rows for slice_ in self.slices]

    @property
    def endpoints(self) -> list[str]:
        """The server of each slice."""
        return [slice_.endpoint for slice_ in self.slices]


@dataclass(frozen=True)
class ShardingPlan:
    """A job: its servers, its number of trainers, what each server holds, how they exchange.

    `synchronous` steps end with barriers. With `merges` a server waits for one gradient of each
    trainer and takes their mean. `runtime_split` leaves cutting and joining to `send` and `recv`.
    `counters` are the counters of the learning-rate schedule, which asynchronous trainers advance.
    """

    endpoints: tuple[str, ...]
    trainers: int
    synchronous: bool
    merges: bool
    mode: DistributedMode
    runtime_split: bool
    half_async: bool
    dc_asgd: bool
    shards: tuple[Shards, ...]
    counters: tuple[str, ...]
    table: Table | None

    def of(self, param: str) -> Shards:
        """The slices of a parameter; KeyError where the plan has none."""
        return next(shards for shards in self.shards if shards.param == param)

    def owned(self, endpoint: str) -> list[tuple[Shards, Slice]]:
        """What a server holds, in order of the updates."""
        return [
            (shards, part)
            for shards in self.shards
            for part in shards.slices
            if part.endpoint == endpoint
        ]

    def sent_name(self, name: str, trainer_id: int) -> str:
        """The name under which a trainer sends a variable: its own where servers merge."""
        return f"{name}{COUNTER_SUFFIX}{trainer_id}" if self.merges else name

    def private_name(self, name: str, part: Slice) -> str:
        """The name, on its server, of the optimizer state for a slice.

        It is the name for the whole parameter, unless the server holds several slices of it.
        """
        slices_here = [
            slice_ for slice_ in self.of(part.param).slices if slice_.endpoint == part.endpoint
        ]
        return part.named(name) if len(slices_here) > 1 else name

    def counter_name(self, counter: str, trainer_id: int) -> str:
        """The name of a trainer's share of a counter of the schedule."""
        return f"{counter}{COUNTER_SUFFIX}{trainer_id}"


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
        np.random.RandomState(program.random_seed).shuffle(shards)
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
    dispatcher = config.split_method(list(endpoints))
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
