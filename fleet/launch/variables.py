"""Environment variables of launchers: those of Paddle 1.8, derived from torchrun's or Slurm's.

Scripts of release 1.8 read PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS and
PADDLE_CURRENT_ENDPOINT. torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, Slurm sets
SLURM_PROCID, SLURM_NTASKS and SLURM_JOB_NODELIST; neither has the endpoints of all processes, so
these are exchanged through a store at the master's address.
"""

from __future__ import annotations

import re
import socket

from compiler.support.dataclass import dataclass
from compiler.support.settings.setting import Environ
from compiler.support.settings.systems import (
    LOCAL_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    RANK,
    SLURM_JOB_ID,
    SLURM_JOB_NODELIST,
    SLURM_LOCALID,
    SLURM_NTASKS,
    SLURM_PROCID,
    WORLD_SIZE,
)

PADDLE_VARIABLES = (
    "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_TRAINER_ENDPOINTS PADDLE_CURRENT_ENDPOINT "
    "PADDLE_TRAINING_ROLE TRAINING_ROLE"
).split()
"""Variables of a collective job that scripts of release 1.8 read, besides FLAGS_selected_gpus."""

SLURM_PORTS = (20_000, 20_000)
"""First port, and number of ports; a Slurm job's number selects its master port among them."""


@dataclass(frozen=True)
class JobProcess:
    """One process of a job: its rank among `world` processes, and the address of the job's
    store.
    """

    rank: int
    world: int
    local_rank: int
    master: str
    port: int


def member_of(environ: Environ = None) -> JobProcess | None:
    """Read this process's rank in its job; None for a process that no launcher started.

    Variables of torchrun are read first, then those of Slurm. Raises ValueError for a variable that
    is missing or not a number.

    >>> member_of({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29"})
    JobProcess(rank=1, world=2, local_rank=0, master='10.0.0.1', port=29)
    """
    if RANK.is_set(environ) and WORLD_SIZE.is_set(environ):
        return _torchrun_member(environ)
    return _slurm_member(environ) if SLURM_NTASKS.read(environ) > 1 else None


def _torchrun_member(environ: Environ) -> JobProcess:
    rank, world, port = (each.require(environ) for each in (RANK, WORLD_SIZE, MASTER_PORT))
    master = MASTER_ADDR.read(environ) or "127.0.0.1"
    return JobProcess(rank, world, LOCAL_RANK.read(environ), master, port)


def _slurm_member(environ: Environ) -> JobProcess:
    rank, world = SLURM_PROCID.require(environ), SLURM_NTASKS.require(environ)
    first, count = SLURM_PORTS
    port = MASTER_PORT.read_or(first + SLURM_JOB_ID.read(environ) % count, environ)
    nodes = SLURM_JOB_NODELIST.read(environ) or "127.0.0.1"
    master = MASTER_ADDR.read(environ) or first_host(nodes)
    return JobProcess(rank, world, SLURM_LOCALID.read(environ), master, port)


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list.

    >>> first_host("node[03-04,07]"), first_host("a,b"), first_host("rack1-n[1,5]")
    ('node03', 'a', 'rack1-n1')
    """
    match = re.match(r"([^,\[]+)(?:\[(\w+))?", nodes)
    if match is None:
        raise ValueError(f"SLURM_JOB_NODELIST is {nodes!r}, expected hosts such as 'node[01-04]'")
    return match[1] + (match[2] or "")


def paddle_variables(
    member: JobProcess, endpoints: list[str], devices: list[str]
) -> dict[str, str]:
    """The variables that a script of release 1.8 reads; `devices` are the GPUs of this machine.

    >>> second = JobProcess(1, 2, 1, "h", 1)
    >>> paddle_variables(second, ["h:7", "h:8"], ["4", "5"])["FLAGS_selected_gpus"]
    '5'
    """
    gpu = {"FLAGS_selected_gpus": devices[member.local_rank]} if devices else {}
    return {
        "PADDLE_TRAINER_ID": str(member.rank),
        "PADDLE_TRAINERS_NUM": str(member.world),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[member.rank],
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "TRAINING_ROLE": "TRAINER",
    } | gpu


def own_host(master: str, port: int) -> str:
    """The address of this machine on the route to the master.

    >>> own_host("127.0.0.1", 6170)
    '127.0.0.1'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, port or 9))  # sends nothing: it only chooses an interface
        return str(probe.getsockname()[0])


def listener(host: str, port: int = 0) -> socket.socket:
    """A socket that listens on `host`, on a free port by default. OSError if in use."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
