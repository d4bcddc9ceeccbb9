"""The trainers on other machines that train together with this process."""

from __future__ import annotations

from compiler.support.dataclass import dataclass
from fluid.data_parallel.strategies import BuildStrategy
from fluid.distributed.job import CollectiveJob
from fluid.framework import Program

__all__ = ["ALONE", "Trainers", "trainers_of"]


@dataclass(frozen=True)
class Trainers:
    """Trainer `number` of `count`; their rendezvous is at the first of `endpoints`, one per
    trainer.

    With `group` above 1, reductions are hierarchical in groups of that many trainers. All-reduces
    are distributed round-robin over `rings` rings.
    """

    count: int = 1
    number: int = 0
    endpoints: tuple[str, ...] = ()
    group: int = 1
    rings: int = 1


ALONE = Trainers()


def trainers_of(program: Program, strategy: BuildStrategy) -> Trainers:
    """The trainers of a strategy, with the endpoints of the transpiled program (mode nccl2), if
    any.

    Raises AssertionError if their number differs from the number of endpoints, ValueError for
    a `trainer_id` out of range, and for several trainers without endpoints.
    """
    job = program.job if isinstance(program.job, CollectiveJob) else CollectiveJob()
    endpoints = job.endpoints or tuple(strategy.trainers_endpoints)
    count, number = strategy.num_trainers, strategy.trainer_id
    if endpoints and count != len(endpoints):
        raise AssertionError(
            f"num_trainers is {count}, but the program has {len(endpoints)} trainer endpoints: "
            f"{', '.join(endpoints)}"
        )
    if not 0 <= number < count:
        raise ValueError(f"trainer_id must be from 0 to {count - 1}, but it is {number}")
    if count > 1 and not endpoints:
        raise ValueError(
            f"num_trainers is {count}, but no rendezvous endpoint is set: transpile the "
            "program by DistributeTranspiler (mode nccl2), or set "
            "build_strategy.trainers_endpoints"
        )
    if count == 1:
        return ALONE
    rings = job.rings or strategy.nccl_comm_num
    return Trainers(count, number, endpoints, _group(job, strategy), rings)


def _group(job: CollectiveJob, strategy: BuildStrategy) -> int:
    """Trainers per group of a hierarchical all-reduce; 1 if it is not hierarchical."""
    if job.group:
        return job.group
    if strategy.use_hierarchical_allreduce:
        return max(1, strategy.hierarchical_allreduce_inter_nranks or 1)
    return 1
