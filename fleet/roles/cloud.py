"""`PaddleCloudRoleMaker`: the role from a launcher's environment."""

from __future__ import annotations

import os

from fleet.roles.base import Role, RoleMakerBase
from fleet.roles.variables import (
    COLLECTIVE_ROLE,
    CURRENT,
    ENDPOINTS,
    HOST,
    PORT,
    RANK,
    ROLE,
    SERVERS,
    WORKER,
    WORKERS,
)

__all__ = ["PaddleCloudRoleMaker"]


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads the role of a process from the environment, on the first query.

    With parameter servers: PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINERS_NUM, TRAINING_ROLE, and
    PADDLE_TRAINER_ID of a trainer or POD_IP and PADDLE_PORT of a server. With `is_collective`:
    PADDLE_TRAINER_ENDPOINTS, and PADDLE_TRAINER_ID, by default 0. Raises ValueError for a variable
    that is missing or malformed, naming it, the expected value and the launcher that sets it.
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def _generate(self) -> None:
        if self._is_collective:
            self._read_collective()
        else:
            self._read_parameter_server()

    def _read_parameter_server(self) -> None:
        environ = os.environ
        servers = SERVERS.read_endpoints(environ)
        workers = WORKERS.read_number(environ, least=1)
        role = ROLE.read_choice(environ, ("TRAINER", "PSERVER"))
        current = _worker(workers) if role == "TRAINER" else _server(servers)
        self._server_endpoints, self._workers, self._current_id = servers, workers, current
        self._role = Role.WORKER if role == "TRAINER" else Role.SERVER

    def _read_collective(self) -> None:
        environ = os.environ
        endpoints = ENDPOINTS.read_endpoints(environ)
        rank = RANK.read_number({RANK.name: "0"} | dict(environ))
        COLLECTIVE_ROLE.read_choice({COLLECTIVE_ROLE.name: "TRAINER"} | dict(environ), ["TRAINER"])
        if rank >= len(endpoints):
            raise RANK.error(f"{rank}, but PADDLE_TRAINER_ENDPOINTS has {len(endpoints)}")
        if environ.get(CURRENT.name, endpoints[rank]) != endpoints[rank]:
            raise CURRENT.error(
                f"{environ[CURRENT.name]!r}, but trainer {rank} is {endpoints[rank]}"
            )
        self._worker_endpoints, self._workers = endpoints, len(endpoints)
        self._role, self._current_id = Role.WORKER, rank


def _worker(workers: int) -> int:
    current = WORKER.read_number(os.environ)
    if current >= workers:
        raise WORKER.error(f"{current}, but PADDLE_TRAINERS_NUM is {workers}")
    return current


def _server(servers: list[str]) -> int:
    own = f"{HOST.read(os.environ)}:{PORT.read_number(os.environ, least=1)}"
    if own not in servers:
        raise HOST.error(f"{own!r} with PADDLE_PORT, which is not among {', '.join(servers)}")
    return servers.index(own)
