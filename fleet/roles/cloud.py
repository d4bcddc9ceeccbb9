"""`PaddleCloudRoleMaker`: the role from a launcher's environment."""

from __future__ import annotations

from compiler.support.settings.paddle import (
    PADDLE_CURRENT_ENDPOINT,
    PADDLE_PORT,
    PADDLE_PSERVERS_IP_PORT_LIST,
    PADDLE_TRAINER_ENDPOINTS,
    PADDLE_TRAINER_ID,
    PADDLE_TRAINERS_NUM,
    PADDLE_TRAINING_ROLE,
    POD_IP,
    TRAINING_ROLE,
)
from fleet.roles.base import Role, RoleMakerBase

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
        servers = list(PADDLE_PSERVERS_IP_PORT_LIST.require())
        workers, role = PADDLE_TRAINERS_NUM.require(), TRAINING_ROLE.require()
        current = trainer_number(workers) if role == "TRAINER" else server_number(servers)
        self._server_endpoints, self._workers, self._current_id = servers, workers, current
        self._role = Role.WORKER if role == "TRAINER" else Role.SERVER

    def _read_collective(self) -> None:
        endpoints, rank = list(PADDLE_TRAINER_ENDPOINTS.require()), PADDLE_TRAINER_ID.read()
        PADDLE_TRAINING_ROLE.read()
        if rank >= len(endpoints):
            got = f"{rank}, but PADDLE_TRAINER_ENDPOINTS has {len(endpoints)}"
            raise ValueError(PADDLE_TRAINER_ID.message(got))
        current = PADDLE_CURRENT_ENDPOINT.read() or endpoints[rank]
        if current != endpoints[rank]:
            got = f"{current!r}, but trainer {rank} is {endpoints[rank]}"
            raise ValueError(PADDLE_CURRENT_ENDPOINT.message(got))
        self._worker_endpoints, self._workers = endpoints, len(endpoints)
        self._role, self._current_id = Role.WORKER, rank


def trainer_number(trainers: int, counted_by: str = PADDLE_TRAINERS_NUM.name) -> int:
    """Return PADDLE_TRAINER_ID, which is below the number of trainers. Raises ValueError."""
    number = PADDLE_TRAINER_ID.require()
    if number >= trainers:
        verb = "is" if counted_by == PADDLE_TRAINERS_NUM.name else "has"
        got = f"{number}, but {counted_by} {verb} {trainers}"
        raise ValueError(PADDLE_TRAINER_ID.message(got))
    return number


def server_number(servers: list[str]) -> int:
    """Return the index of POD_IP and PADDLE_PORT among the servers. Raises ValueError."""
    own = f"{POD_IP.require()}:{PADDLE_PORT.require()}"
    if own not in servers:
        got = f"{own!r} with PADDLE_PORT, which is not among {', '.join(servers)}"
        raise ValueError(POD_IP.message(got))
    return servers.index(own)
