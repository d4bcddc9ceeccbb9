"""`GeneralRoleMaker`: workers and servers, all with separate endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.types import Array
from compiler.support.settings.paddle import (
    PADDLE_GLOO_ENDPOINT,
    PADDLE_PSERVER_ID,
    PADDLE_PSERVERS_IP_PORT_LIST,
    PADDLE_TRAINER_ENDPOINTS,
    TRAINING_ROLE,
)
from compiler.support.settings.setting import is_endpoint
from fleet.roles.base import Role, RoleMakerBase
from fleet.roles.cloud import server_number, trainer_number

__all__ = ["CommunicatingRoleMaker", "GeneralRoleMaker"]


class CommunicatingRoleMaker(RoleMakerBase):
    """The collectives of role makers, under their names in release 1.8."""

    def _all_gather(self, obj: float) -> list[float]:
        """Gather one number from every process."""
        return self.all_gather(obj)

    def _worker_gather(self, obj: float) -> list[float] | None:
        """Gather one number from every worker; None on a server."""
        return self._meeting().gather(obj, "workers") if self.is_worker() else None

    def _all_reduce(
        self, input: Sequence[float] | Array, output: list[float] | Array, mode: str = "sum"
    ) -> None:
        """Reduce over the workers, see `all_reduce_worker`."""
        self.all_reduce_worker(input, output, mode)

    def _barrier_worker(self) -> None:
        """Wait until every worker has called this; does nothing on a server."""
        self.barrier_worker()

    def _barrier_server(self) -> None:
        """Wait until every server has called this; does nothing on a worker."""
        if self.is_server():
            self._meeting().barrier("servers")

    def _barrier_all(self) -> None:
        """Wait until every process has called this."""
        self.barrier_all()

    def _worker_num(self) -> int:
        """The number of workers."""
        return self.worker_num()

    def _server_num(self) -> int:
        """The number of servers."""
        return self.server_num()

    def _get_rank(self) -> int:
        """This process's number among all: workers first."""
        first = 0 if self.is_worker() else self.worker_num()
        return first + self.worker_index()

    def _get_size(self) -> int:
        """The number of processes."""
        return self.worker_num() + self.server_num()

    def _finalize(self) -> None:
        """Leave the collectives."""
        self.finalize()


class GeneralRoleMaker(CommunicatingRoleMaker):
    """Reads the role of a process, and the endpoints of all, from the environment.

    PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINER_ENDPOINTS, TRAINING_ROLE, and PADDLE_TRAINER_ID of
    a trainer, PADDLE_PSERVER_ID or POD_IP and PADDLE_PORT of a server. All processes meet at
    `http_ip_port` (host:port on trainer 0's machine), by default PADDLE_GLOO_ENDPOINT, else at
    trainer 0's endpoint; trainer 0 hosts the rendezvous from the start if there are several
    servers. Keywords for HDFS are accepted and not used. Raises TypeError for other
    keywords, ValueError for times that are not positive and for variables that are missing or
    malformed.
    """

    def __init__(
        self,
        *,
        hdfs_name: str = "",
        hdfs_ugi: str = "",
        path: str = "",
        init_timeout_seconds: float = 3600,
        run_timeout_seconds: float = 9999999,
        http_ip_port: str = "",
    ) -> None:
        super().__init__()
        if http_ip_port and not is_endpoint(http_ip_port):
            raise ValueError(f"http_ip_port must be host:port, but is {http_ip_port!r}")
        if init_timeout_seconds <= 0 or run_timeout_seconds <= 0:
            raise ValueError("init_timeout_seconds and run_timeout_seconds must be positive")
        self._http_ip_port = http_ip_port
        self._init_timeout_seconds = init_timeout_seconds
        self._run_timeout_seconds = run_timeout_seconds
        self._cur_endpoint = ""

    def get_local_endpoint(self) -> str:
        """This process's endpoint."""
        self.generate_role()
        return self._cur_endpoint

    def _generate(self) -> None:
        servers = list(PADDLE_PSERVERS_IP_PORT_LIST.require())
        workers, role = list(PADDLE_TRAINER_ENDPOINTS.require()), TRAINING_ROLE.require()
        own = workers if role == "TRAINER" else servers
        number = _worker_number(workers) if role == "TRAINER" else _server_number(servers)
        self._worker_endpoints, self._server_endpoints = workers, servers
        self._workers, self._current_id = len(workers), number
        self._role = Role.WORKER if role == "TRAINER" else Role.SERVER
        self._cur_endpoint = own[number]
        self._role_is_generated = True
        self._meeting().host()

    def _place(self) -> str:
        return self._http_ip_port or PADDLE_GLOO_ENDPOINT.read_or(self._worker_endpoints[0])

    def _patience(self) -> float:
        return min(self._init_timeout_seconds, self._run_timeout_seconds)


def _worker_number(workers: list[str]) -> int:
    return trainer_number(len(workers), PADDLE_TRAINER_ENDPOINTS.name)


def _server_number(servers: list[str]) -> int:
    if not PADDLE_PSERVER_ID.is_set():
        return server_number(servers)
    number = PADDLE_PSERVER_ID.read()
    if number >= len(servers):
        got = f"{number}, but PADDLE_PSERVERS_IP_PORT_LIST has {len(servers)}"
        raise ValueError(PADDLE_PSERVER_ID.message(got))
    return number
