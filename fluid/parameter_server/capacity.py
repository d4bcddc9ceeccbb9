"""What a transpiled job moves and holds: bytes a step, bytes of memory, servers it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fluid.parameter_server.serving import sent_gradients
from fluid.parameter_server.sessions import exchanges, received
from runtime.ps.capacity import Moved, gradients_moved, parameters_moved, servers_needed

__all__ = ["Capacity", "ServerLoad", "capacity"]


@dataclass(frozen=True)
class ServerLoad:
    """One server: what each trainer sends it and gets from it in a step, and its variables' bytes."""

    endpoint: str
    up: Moved
    down: Moved
    held: int


@dataclass(frozen=True)
class Capacity:
    """A job of synchronous steps: its trainers, and the load of each server."""

    trainers: int
    servers: tuple[ServerLoad, ...]

    @property
    def up(self) -> int:
        """Bytes that one trainer sends in a step."""
        return sum(each.up.nbytes for each in self.servers)

    @property
    def down(self) -> int:
        """Bytes that one trainer receives in a step."""
        return sum(each.down.nbytes for each in self.servers)

    def servers_needed(self, steps_a_second: float, server_bytes_a_second: float) -> int:
        """The servers that so many steps a second need, each moving so many bytes each way."""
        rates = steps_a_second, server_bytes_a_second
        return servers_needed(self.trainers, self.up, self.down, *rates)

    def __str__(self) -> str:
        lines = [f"{self.trainers} trainers; MB of each trainer and step:"]
        for each in self.servers:
            sizes = f"sent {each.up.nbytes / 1e6:.3f}, received {each.down.nbytes / 1e6:.3f}"
            lines.append(f"  {each.endpoint}  {sizes}; holds {each.held / 1e6:.3f} MB")
        return "\n".join(lines)


def capacity(transpiler: Any, rows: Mapping[str, int] | None = None) -> Capacity:
    """The load of every server of a job that was transpiled with `sync_mode`.

    `rows` has, for each sparse parameter, how many different rows of it a trainer's batch reads.
    Raises KeyError for a sparse parameter that it lacks, ValueError for a job without barriers.
    """
    plan = transpiler.sharding_plan
    if not plan.synchronous:
        raise ValueError("trainers that do not wait have no steps: transpile with sync_mode=True")
    loads = [_load(transpiler, plan, endpoint, rows or {}) for endpoint in plan.endpoints]
    return Capacity(plan.trainers, tuple(loads))
