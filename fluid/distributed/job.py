"""`Program.job`: what a program knows of the job of several processes that it is part of.

A class for each kind of program: of a trainer and of a server in a job with parameter servers, of
a trainer in a job without, and one that was derived from a trainer's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compiler.ir.program import Block
from compiler.support.dataclass import dataclass
from fluid.distributed.placement import VarsDistributed
from fluid.distributed.sharding import ShardingPlan

__all__ = [
    "GEO_STEPS",
    "CollectiveJob",
    "DerivedJob",
    "DistributedJob",
    "ParameterServerJob",
    "ProgramOfJob",
    "ServerJob",
    "TrainerJob",
    "is_distributed",
]

GEO_STEPS = 100
"""The steps between two exchanges of GEO where the settings do not say otherwise."""


class ProgramOfJob(Protocol):
    """A program, as the modules that run jobs read it."""

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks of ops; the main one is first."""
        ...

    @property
    def job(self) -> DistributedJob | None:
        """The job that it is part of."""
        ...


@dataclass(frozen=True)
class DistributedJob:
    """A job of several processes, as a program of it knows it."""


@dataclass(frozen=True)
class CollectiveJob(DistributedJob):
    """A job without servers, as the program of a trainer knows it.

    `is_chief`: it is that of trainer 0. `endpoints` are those of all trainers, in mode `nccl2`.
    `rings` is the number of rings, 0 for that of the build strategy; reductions are hierarchical,
    in groups of `group` trainers, if that is not 0.
    """

    is_chief: bool = False
    endpoints: tuple[str, ...] = ()
    rings: int = 0
    group: int = 0


@dataclass(frozen=True)
class ParameterServerJob(DistributedJob):
    """A job with parameter servers, as the programs of trainers and servers know it.

    `endpoint` is that of the program's own process. `counters` are the counters of the
    learning-rate schedule that servers advance. `settings` has the fields of
    `runtime.ps.settings.Settings` that the transpiler's configuration sets.
    """

    plan: ShardingPlan
    placement: VarsDistributed
    endpoint: str
    counters: tuple[str, ...]
    settings: Mapping[str, str | float]


@dataclass(frozen=True)
class TrainerJob(ParameterServerJob):
    """A job with parameter servers, as the main and the startup program of a trainer know it.

    `is_chief`: it is trainer 0. `geo_steps` is the number of steps between two exchanges of GEO.
    """

    is_chief: bool
    geo_steps: int = GEO_STEPS


@dataclass(frozen=True)
class ServerJob(ParameterServerJob):
    """A job with parameter servers, as the main and the startup program of a server know it."""


@dataclass(frozen=True)
class DerivedJob(DistributedJob):
    """The job of a program that exchanges nothing itself, such as a saved inference program.

    `trainer` is the program of the trainer whose variables it has.
    """

    trainer: ProgramOfJob


def is_distributed(job: DistributedJob | None) -> bool:
    """Whether the program of a job was transpiled for it, so that it must not be once more."""
    return job is not None and not isinstance(job, DerivedJob)
