"""The sharding plan of a job with parameter servers: which server holds which rows of what.

Plain data, without programs: `fluid.transpiler.distribute.plan` computes it from one.
"""

from __future__ import annotations

import math
from enum import IntEnum

from compiler.ir.program import GRAD
from compiler.support.dataclass import dataclass

__all__ = ["DistributedMode", "ShardingPlan", "Shards", "Slice", "Table"]

COUNTER_SUFFIX = ".trainer_"
PREFETCH_IN, PREFETCH_OUT = "prefetch_compress_in_tmp_", "prefetch_compress_out_tmp_"


class DistributedMode(IntEnum):
    """How servers wait for trainers: the attribute `distributed_mode` of `listen_and_serv`."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of one parameter, which one server holds.

    `index` is its number among the `count` slices of the parameter, `start` its first row;
    `whole` is the shape of the parameter and `shape` that of the slice.
    """

    param: str
    index: int
    count: int
    start: int
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    endpoint: str

    @property
    def name(self) -> str:
        """The name of the variable on its server."""
        return self.named(self.param)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.shape[0]

    @property
    def offset(self) -> int:
        """The number of elements before it."""
        return self.start * math.prod(self.whole[1:])

    @property
    def is_whole(self) -> bool:
        """Whether it is the only slice of its parameter."""
        return self.count == 1

    def named(self, name: str) -> str:
        """The name of the same slice of another variable, such as the gradient."""
        return name if self.is_whole else f"{name}.block{self.index}"


@dataclass(frozen=True)
class Table:
    """An embedding table with `is_distributed`: its shape, and the servers that share its rows."""

    name: str
    shape: tuple[int, ...]
    endpoints: tuple[str, ...]

    @property
    def rows_here(self) -> int:
        """Number of rows each server allocates."""
        return -(-self.shape[0] // len(self.endpoints))

    @property
    def gradient(self) -> str:
        """The gradient that trainers send."""
        return self.name + GRAD

    def prefetched(self, server: int) -> tuple[str, str]:
        """The variables with the ids for a server, and with the rows it answers."""
        return f"{PREFETCH_IN}{server}", f"{PREFETCH_OUT}{server}"


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
