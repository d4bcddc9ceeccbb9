"""Completes the environment of a process that torchrun, srun or this launcher started.

Done once, before a script runs: every process listens on its own endpoint, all exchange these
through the job's store, and each sets the variables that scripts of Paddle 1.8 read.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from compiler.support.settings.fluid import FLUID_ENDPOINT_FD
from compiler.support.settings.paddle import (
    CPU_NUM,
    PADDLE_PSERVERS_IP_PORT_LIST,
    PADDLE_TRAINER_ENDPOINTS,
)
from compiler.support.settings.setting import export
from compiler.support.settings.systems import LOCAL_RANK, MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE
from fleet.launch.variables import (
    JobProcess,
    listener,
    member_of,
    own_host,
    paddle_variables,
)
from runtime.collective.engine import distributed

KNOWN = (PADDLE_TRAINER_ENDPOINTS, PADDLE_PSERVERS_IP_PORT_LIST)
"""If one of these is set, the process already has a role."""
SECONDS_TO_MEET = 300
"""Timeout for the processes of a job to find each other."""


def adopt(gpus: str = "", started_port: int | None = None) -> None:
    """Set this process's PADDLE_* variables if a launcher started it and they are not set.

    `gpus` are those of this machine, comma-separated; `started_port` is the port of the first
    process's endpoint, None for free ports. Raises ValueError for a variable that is malformed and
    OSError for a port in use.
    """
    member = member_of()
    if member is None or any(each.is_set() for each in KNOWN):
        return
    host = own_host(member.master, member.port)
    own = listener(host, 0 if started_port is None else started_port + member.local_rank)
    endpoints = exchange(_store(member), member, own) if member.world > 1 else [_text(own)]
    devices = [gpu for gpu in gpus.split(",") if gpu]
    export({FLUID_ENDPOINT_FD.name: str(own.detach())})
    export(paddle_variables(member, endpoints, devices))
    if not CPU_NUM.is_set():
        export({CPU_NUM.name: "1"})


def exchange(store: Any, member: JobProcess, own: socket.socket) -> list[str]:
    """Publish this process's endpoint and read those of all, in rank order."""
    store.set(f"fluid/endpoint/{member.rank}", _text(own))
    endpoints = [store.get(f"fluid/endpoint/{rank}").decode() for rank in range(member.world)]
    _leave(store, member)
    return endpoints


def _text(own: socket.socket) -> str:
    """The endpoint of a listening socket, as `host:port`."""
    host, port = own.getsockname()
    return f"{host}:{port}"


def _leave(store: Any, member: JobProcess) -> None:
    """If this process hosts the store, wait until no other process needs it."""
    others = member.world - 1
    if member.rank and store.add("fluid/left", 1) == others:
        store.set("fluid/all left", "1")
    if member.rank == 0 and others:
        store.wait(["fluid/all left"])


def _store(member: JobProcess) -> Any:
    """The store of the job; its host is chosen by torch's rules."""
    export({
        RANK.name: str(member.rank), WORLD_SIZE.name: str(member.world),
        LOCAL_RANK.name: str(member.local_rank), MASTER_ADDR.name: member.master,
        MASTER_PORT.name: str(member.port),
    })  # fmt: skip
    rendezvous = distributed().rendezvous
    store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=SECONDS_TO_MEET)))
    return store
