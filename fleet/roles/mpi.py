"""`MPISymetricRoleMaker`: processes of mpirun or srun, alternately servers and workers."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import NamedTuple

import numpy as np

from compiler.support.settings.paddle import PADDLE_GLOO_ENDPOINT
from compiler.support.settings.setting import Environ
from compiler.support.settings.systems import (
    OMPI_COMM_WORLD_RANK,
    OMPI_COMM_WORLD_SIZE,
    PMI_RANK,
    PMI_SIZE,
    SLURM_JOB_ID,
    SLURM_JOB_NODELIST,
    SLURM_NTASKS,
    SLURM_PROCID,
)
from fleet.launch.variables import first_host, listener, own_host
from fleet.roles.base import Role
from fleet.roles.general import CommunicatingRoleMaker
from fleet.roles.meeting import Meeting

__all__ = ["LauncherMissing", "MPISymetricRoleMaker"]

PER_MACHINE = 2
LAUNCHERS = (
    (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE),
    (PMI_RANK, PMI_SIZE),
    (SLURM_PROCID, SLURM_NTASKS),
)
PORTS = 40_000, 20_000
"""First port, and number of ports; a Slurm job's number selects the rendezvous among them."""


class LauncherMissing(ImportError):
    """No launcher of MPI started this process.

    An ImportError, as scripts of release 1.8 expect where mpi4py is missing.
    """


class MpiRank(NamedTuple):
    """The rank of a process and the number of processes."""

    rank: int
    size: int


class MPISymetricRoleMaker(CommunicatingRoleMaker):
    """Even ranks are servers and odd ranks are workers, so each machine runs two processes.

    Rank and size are read from the variables of Open MPI, MPICH or Slurm; MPI itself is not used.
    All meet at PADDLE_GLOO_ENDPOINT, host:port on rank 1's machine (worker 0); under Slurm it may
    be absent. Raises LauncherMissing if no launcher's variables are set, and ValueError for an odd
    number of processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._proc_per_node = PER_MACHINE

    def _generate(self) -> None:
        rank, size = rank_from_environment()
        if size % PER_MACHINE:
            raise ValueError(f"{size} processes, expected an even number: half of them are servers")
        self._workers = size // PER_MACHINE
        self._current_id = rank // PER_MACHINE
        self._role = Role.SERVER if rank % PER_MACHINE == 0 else Role.WORKER
        first = 0 if self._role == Role.WORKER else self._workers
        self._met = Meeting(self._place(), self._workers, self._workers, first + self._current_id)
        endpoints = self._exchange(self._met)
        self._worker_endpoints, self._server_endpoints = (
            endpoints[: self._workers], endpoints[self._workers :],
        )  # fmt: skip

    def _exchange(self, meeting: Meeting) -> list[str]:
        """The endpoints of all processes, workers first: each chooses a free port."""
        host, _, port = self._place().rpartition(":")
        with listener(own_host(host, int(port))) as own:
            address, number = own.getsockname()
            mine = int(IPv4Address(address)) << 16 | number
            addresses = meeting.gather(np.int64(mine), "all")
        return [f"{IPv4Address(int(packed) >> 16)}:{int(packed) & 0xFFFF}" for packed in addresses]

    def _place(self) -> str:
        if not PADDLE_GLOO_ENDPOINT.is_set() and SLURM_JOB_NODELIST.is_set():
            first, count = PORTS
            port = first + SLURM_JOB_ID.read() % count
            return f"{first_host(SLURM_JOB_NODELIST.read())}:{port}"
        return PADDLE_GLOO_ENDPOINT.require()


def rank_from_environment(environ: Environ = None) -> MpiRank:
    """This process's rank and the number of processes, from its launcher's variables.

    Raises LauncherMissing if there are none.

    >>> rank_from_environment({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    MpiRank(rank=1, size=2)
    """
    for rank, size in LAUNCHERS:
        if rank.is_set(environ):
            result = MpiRank(rank.require(environ), size.require(environ))
            if result.rank >= result.size:
                got = f"{result.rank}, but {size.name} is {result.size}"
                raise ValueError(rank.message(got))
            return result
    names = ", ".join(rank.name for rank, _ in LAUNCHERS)
    raise LauncherMissing(f"none of {names} is set: start the processes by mpirun, mpiexec or srun")
