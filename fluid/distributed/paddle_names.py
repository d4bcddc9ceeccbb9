"""`Program.job` under the attributes of Paddle 1.8.5, which scripts read (`framework.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluid.distributed.job import (
    CollectiveJob,
    DistributedJob,
    ParameterServerJob,
    TrainerJob,
    is_distributed,
)
from fluid.distributed.placement import VarsDistributed

__all__ = ["JobNames"]


class JobNames:
    """Base of `Program` with its job, and Paddle's attributes computed from that."""

    job: DistributedJob | None = None
    """The job of several processes that the program is part of; None for one process."""
    fleet_opt: Mapping[str, object] | None = None
    """An optimizer's settings of the run, as `fleet` stores them."""

    @property
    def _fleet_opt(self) -> Mapping[str, object] | None:
        return self.fleet_opt

    @_fleet_opt.setter
    def _fleet_opt(self, settings: Mapping[str, object] | None) -> None:
        self.fleet_opt = settings

    pipeline_opt: Mapping[str, object] | None = None
    """The sections of a pipeline that the program is, as scripts store them."""

    @property
    def _pipeline_opt(self) -> Mapping[str, object] | None:
        return self.pipeline_opt

    @_pipeline_opt.setter
    def _pipeline_opt(self, settings: Mapping[str, object] | None) -> None:
        self.pipeline_opt = settings

    @property
    def _of_servers(self) -> ParameterServerJob | None:
        return self.job if isinstance(self.job, ParameterServerJob) else None

    @property
    def _of_trainers(self) -> CollectiveJob:
        return self.job if isinstance(self.job, CollectiveJob) else CollectiveJob()

    @property
    def _is_distributed(self) -> bool:
        """Whether it was transpiled for a job."""
        return is_distributed(self.job)

    @property
    def _is_chief(self) -> bool:
        """Whether it is the program of trainer 0."""
        return isinstance(self.job, CollectiveJob | TrainerJob) and self.job.is_chief

    @property
    def _parameters_on_pservers(self) -> VarsDistributed | None:
        """Where the variables of the job lie; None without servers."""
        return None if self._of_servers is None else self._of_servers.placement

    @property
    def _endpoints(self) -> list[str]:
        """The endpoints of the servers."""
        return [] if self._of_servers is None else list(self._of_servers.plan.endpoints)

    @property
    def _ps_endpoint(self) -> str | None:
        """The endpoint of this process in a job with servers."""
        return None if self._of_servers is None else self._of_servers.endpoint

    @property
    def _distributed_lookup_table(self) -> str | None:
        """The name of the embedding table with `is_distributed`, if there is one."""
        table = None if self._of_servers is None else self._of_servers.plan.table
        return None if table is None else table.name

    @property
    def _trainers_endpoints(self) -> list[str]:
        """The endpoints of the trainers of a job without servers; scripts may set them."""
        return list(self._of_trainers.endpoints)

    @_trainers_endpoints.setter
    def _trainers_endpoints(self, endpoints: Sequence[str]) -> None:
        self.job = CollectiveJob(endpoints=tuple(endpoints))

    @property
    def _nccl_comm_num(self) -> int:
        """The number of rings of a job without servers."""
        return self._of_trainers.rings or 1

    @property
    def _use_hierarchical_allreduce(self) -> bool:
        """Whether reductions of a job without servers are hierarchical."""
        return self._of_trainers.group > 0

    @property
    def _hierarchical_allreduce_inter_nranks(self) -> int:
        """The number of trainers in a group of hierarchical reductions."""
        return self._of_trainers.group
