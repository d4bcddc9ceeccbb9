"""Role makers whose roles are passed by the script."""

from __future__ import annotations

import warnings

from compiler.support.settings.paddle import PADDLE_GLOO_ENDPOINT
from fleet.roles.base import Role, RoleMakerBase
from fluid.recording.narrowing import is_list

__all__ = ["UserDefinedCollectiveRoleMaker", "UserDefinedRoleMaker"]


class UserDefinedRoleMaker(RoleMakerBase):
    """A worker or a server of a job with parameter servers, defined by its arguments.

    Raises TypeError and ValueError for endpoints that are not a list of distinct strings, for
    another role, and for numbers that are out of range.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: list[str] | None = None,
    ) -> None:
        super().__init__()
        _expect_endpoints(server_endpoints, "server_endpoints")
        if role not in (Role.WORKER, Role.SERVER):
            raise TypeError(f"role must be Role.WORKER or Role.SERVER, not {role!r}")
        _expect_number(worker_num, "worker_num", least=1)
        most = worker_num if role == Role.WORKER else len(server_endpoints or ())
        _expect_number(current_id, "current_id", least=0, below=most)
        self._server_endpoints = list(server_endpoints or ())
        self._role, self._current_id, self._workers = role, current_id, worker_num

    def _generate(self) -> None:
        """Do nothing: the constructor set the role."""

    def barrier_worker(self) -> None:
        """Wait until every worker has called this.

        Workers known by number only meet at PADDLE_GLOO_ENDPOINT; without it this returns at once,
        with a warning, as in release 1.8.5.
        """
        if self._can_meet("barrier_worker"):
            super().barrier_worker()

    def barrier_all(self) -> None:
        """Wait until every worker and every server has called this; else as `barrier_worker`."""
        if self._can_meet("barrier_all"):
            super().barrier_all()

    def _can_meet(self, method: str) -> bool:
        """Whether the processes know where to meet; if not, warns that `method` waits for none."""
        if self._workers == 1 or PADDLE_GLOO_ENDPOINT.is_set():
            return True
        warnings.warn(
            f"{method} waits for nobody: set {PADDLE_GLOO_ENDPOINT.name} to a host:port of "
            "trainer 0's machine, at which all processes meet",
            stacklevel=3,
        )
        return False


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A worker of collective training, defined by its arguments; raises as
    `UserDefinedRoleMaker`.
    """

    def __init__(self, current_id: int = 0, worker_endpoints: list[str] | None = None) -> None:
        super().__init__()
        _expect_endpoints(worker_endpoints, "worker_endpoints")
        self._worker_endpoints = list(worker_endpoints or ())
        self._workers = len(self._worker_endpoints)
        _expect_number(current_id, "current_id", least=0, below=self._workers)
        self._role, self._current_id = Role.WORKER, current_id

    def _generate(self) -> None:
        """Do nothing: the constructor set the role."""


def _expect_endpoints(endpoints: object, name: str) -> None:
    if not is_list(endpoints):
        raise TypeError(f"{name} must be a list of host:port, not {type(endpoints).__name__}")
    if not endpoints:
        raise ValueError(f"{name} is empty: expected at least one host:port")
    names: list[str] = []
    for endpoint in endpoints:
        if not isinstance(endpoint, str):
            raise TypeError(f"{name} must hold strings such as '127.0.0.1:6174', not {endpoint!r}")
        names.append(endpoint)
    if len(set(names)) != len(names):
        raise ValueError(f"{name} has an endpoint twice: {', '.join(names)}")


def _expect_number(number: object, name: str, least: int, below: int | None = None) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if number < least or (below is not None and number >= below):
        most = "" if below is None else f" and less than {below}"
        raise ValueError(f"{name} is {number}, expected at least {least}{most}")
