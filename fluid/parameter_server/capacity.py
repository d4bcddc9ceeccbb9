"""What a transpiled job moves and holds: bytes a step, bytes of memory, servers it needs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Protocol

import numpy as np

from compiler.support.dataclass import dataclass
from fluid.distributed.sharding import ShardingPlan
from fluid.framework import Program, Variable
from fluid.parameter_server.serving import gradients_of
from fluid.parameter_server.sessions import received
from runtime.ps.capacity import (
    Moved,
    gradients_moved,
    lookups_moved,
    parameters_moved,
    servers_needed,
)

__all__ = ["Capacity", "ServerLoad", "capacity"]


@dataclass(frozen=True)
class ServerLoad:
    """One server: what each trainer sends it and receives from it in a step, in messages.

    `held` are the bytes of its variables: parameters and what optimizers remember.
    """

    endpoint: str
    up: Moved
    down: Moved
    held: int


@dataclass(frozen=True)
class Capacity:
    """A job of synchronous steps: the number of its trainers, and the load of each server."""

    trainers: int
    servers: tuple[ServerLoad, ...]

    @property
    def up(self) -> int:
        """Bytes that one trainer sends in a step."""
        return sum(server.up.nbytes for server in self.servers)

    @property
    def down(self) -> int:
        """Bytes that one trainer receives in a step."""
        return sum(server.down.nbytes for server in self.servers)

    def servers_needed(self, steps_a_second: float, server_bytes_a_second: float) -> int:
        """How many servers so many steps a second need, each moving so many bytes each way."""
        rates = steps_a_second, server_bytes_a_second
        return servers_needed(self.trainers, self.up, self.down, *rates)

    def __str__(self) -> str:
        lines = [f"{self.trainers} trainers; MB of one trainer and step:"]
        for server in self.servers:
            sizes = f"sends {server.up.nbytes / 1e6:.3f}, receives {server.down.nbytes / 1e6:.3f}"
            lines.append(
                f"  {server.endpoint}  {sizes}; the server holds {server.held / 1e6:.3f} MB"
            )
        return "\n".join(lines)


class TranspiledJob(Protocol):
    """A job as `fluid.DistributeTranspiler` has it."""

    @property
    def sharding_plan(self) -> ShardingPlan:
        """Which server holds what."""
        ...

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The main program of a trainer."""
        ...

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The main and the startup program of a server."""
        ...


def capacity(transpiler: TranspiledJob, rows: Mapping[str, int] | None = None) -> Capacity:
    """The load of every server of a job that was transpiled with `sync_mode=True`.

    `rows` has, for each sparse parameter or for each slice of it on a server, how many different
    rows of it the batch of a trainer reads. Raises KeyError for a sparse parameter that it lacks,
    ValueError for a job without barriers.
    """
    plan = transpiler.sharding_plan
    if not plan.synchronous:
        raise ValueError("trainers that do not wait have no steps: transpile with sync_mode=True")
    main = transpiler.get_trainer_program(wait_port=False)
    names = received(main)
    loads: list[ServerLoad] = []
    for endpoint in plan.endpoints:
        server, startup = transpiler.get_pserver_programs(endpoint)
        counts = _rows(plan, endpoint, rows or {})
        up, down = _moved(server, names.get(endpoint, []), counts)
        loads.append(ServerLoad(endpoint, up, down, _held(startup)))
    return Capacity(plan.trainers, tuple(loads))


def _rows(plan: ShardingPlan, endpoint: str, rows: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    """For each sparse slice on a server, the name of its gradient, and how many rows are read."""
    rows_by_gradient: dict[str, tuple[str, int]] = {}
    for shards, part in plan.owned(endpoint):
        if shards.is_sparse:
            share = part.rows / part.whole[0]
            count = rows[part.name] if part.name in rows else round(rows[shards.param] * share)
            rows_by_gradient[part.name] = part.named(shards.gradient), count
    return rows_by_gradient


def _moved(
    server: Program, names: list[str], rows: Mapping[str, tuple[str, int]]
) -> tuple[Moved, Moved]:
    """What one trainer, the first, sends a server and receives from it in a step."""
    sent = [gradient for gradient in gradients_of(server) if gradient.trainer in (None, 0)]
    counts = {f"{gradient}.trainer_0": count for gradient, count in rows.values()}
    variables = server.global_block().vars
    up = gradients_moved(sent, counts)
    down = parameters_moved((n, *_described(variables[n])) for n in names)
    for name, (_, count) in rows.items():
        if name not in names:
            dtype, shape = _described(variables[name])
            asked, answered = lookups_moved(name, dtype, shape[-1], count)
            up, down = up + asked, down + answered
    return up, down


def _held(startup: Program) -> int:
    """The bytes of what the startup program of a server makes."""
    block = startup.global_block()
    names = {name for op in block.ops for name in op.writes()}
    described = [_described(block.vars[name]) for name in names]
    return sum(prod(shape) * np.dtype(dtype).itemsize for dtype, shape in described)


def _described(var: Variable) -> tuple[str, tuple[int, ...]]:
    return str(var.element.numpy), tuple(int(size) for size in var.shape)
