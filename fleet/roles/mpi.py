"""`MPISymetricRoleMaker`: processes of mpirun or srun, alternately servers and workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

import numpy as np

from fleet.launch.variables import first_host, listener, own_host
from fleet.roles.base import Role
from fleet.roles.general import CommunicatingRoleMaker
from fleet.roles.meeting import Meeting
from fleet.roles.variables import MEETING, Variable

__all__ = ["MPISymetricRoleMaker"]

PER_MACHINE = 2
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun of Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec of MPICH"),
    ("SLURM_PROCID", "SLURM_NTASKS", "srun"),
)
PORTS = 40_000, 20_000
"""First port, and number of ports; a Slurm job's number selects the rendezvous among them."""


class Place(NamedTuple):
    """The rank of a process and the number of processes."""

    rank: int
    size: int


class MPISymetricRoleMaker(CommunicatingRoleMaker):
    """Even ranks are servers and odd ranks are workers, so each machine runs two processes.

    Rank and size are read from the variables of Open MPI, MPICH or Slurm; MPI itself is not used.
    All meet at PADDLE_GLOO_ENDPOINT, host:port on rank 1's machine (worker 0); under Slurm it may
    be absent. Raises ValueError if no launcher's variables are set, and for an odd number of
    processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._proc_per_node = PER_MACHINE

    def _generate(self) -> None:
        rank, size = place_of(os.environ)
        if size % PER_MACHINE:
            raise ValueError(f"{size} processes, expected an even number: half of them are servers")
        self._workers = size // PER_MACHINE
        self._current_id = rank // PER_MACHINE
        self._role = Role.SERVER if rank % PER_MACHINE == 0 else Role.WORKER
        first = 0 if self._role == Role.WORKER else self._workers
        self._met = Meeting(self._place(), self._workers, self._workers, first + self._current_id)
        found = self._exchange(self._met)
        self._worker_endpoints, self._server_endpoints = (
            found[: self._workers], found[self._workers :],
        )  # fmt: skip

    def _exchange(self, meeting: Meeting) -> list[str]:
        """The endpoints of all processes, workers first: each chooses a free port."""
        host, _, port = self._place().rpartition(":")
        with listener(own_host(host, int(port))) as own:
            address, number = own.getsockname()
            mine = int(IPv4Address(address)) << 16 | number
            found = meeting.gather(np.int64(mine), "all")
        return [f"{IPv4Address(int(each) >> 16)}:{int(each) & 0xFFFF}" for each in found]

    def _place(self) -> str:
        environ = os.environ
        if MEETING.name not in environ and "SLURM_JOB_NODELIST" in environ:
            first, count = PORTS
            port = first + int(environ.get("SLURM_JOB_ID") or 0) % count
            return f"{first_host(environ['SLURM_JOB_NODELIST'])}:{port}"
        return MEETING.read_endpoints(environ)[0]


def place_of(environ: Mapping[str, str]) -> Place:
    """This process's rank and the number of processes, from its launcher's variables.

    >>> place_of({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    Place(rank=1, size=2)
    """
    for rank_name, size_name, launcher in LAUNCHERS:
        if rank_name in environ:
            rank = Variable(rank_name, "this process's rank, from 0", launcher)
            size = Variable(size_name, "the number of processes", launcher)
            found = Place(rank.read_number(environ), size.read_number(environ, least=1))
            if found.rank >= found.size:
                raise rank.error(f"{found.rank}, but {size_name} is {found.size}")
            return found
    names = ", ".join(name for name, _, _ in LAUNCHERS)
    raise ValueError(f"none of {names} is set: start the processes by mpirun, mpiexec or srun")
