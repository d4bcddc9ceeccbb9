"""`RoleMakerBase`: the interface of role makers, and collectives between processes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array
from compiler.support.settings.paddle import PADDLE_GLOO_ENDPOINT, PADDLE_TRAINER_ENDPOINTS
from fleet.roles.meeting import MODES, Meeting, as_vector

__all__ = ["Role", "RoleMakerBase"]


class Role:
    """The two roles of a process."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """The role of this process: worker or server, its number, and the endpoints of the others.

    A subclass sets the fields in `generate_role`, which every query calls first; the base class
    has no role, and its queries raise NotImplementedError.
    """

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role: int | None = None
        self._current_id = -1
        self._workers = 0
        self._met: Meeting | None = None

    def generate_role(self) -> None:
        """Determine the role of this process, once. Raises what the subclass documents."""
        if not self._role_is_generated:
            self._generate()
            self._role_is_generated = True

    def _generate(self) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no role: use PaddleCloudRoleMaker or UserDefinedRoleMaker"
        )

    # ---- who this process is ----

    def is_worker(self) -> bool:
        """Whether this process trains."""
        self.generate_role()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Whether this process is a parameter server."""
        self.generate_role()
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Whether this process is worker 0."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """The number of workers."""
        self.generate_role()
        return self._workers

    def server_num(self) -> int:
        """The number of servers."""
        return len(self.get_pserver_endpoints())

    def worker_index(self) -> int:
        """This process's number among those of its role."""
        self.generate_role()
        return self._current_id

    def server_index(self) -> int:
        """This process's number among those of its role."""
        self.generate_role()
        return self._current_id

    def role_id(self) -> int:
        """This process's number among those of its role."""
        return self.worker_index()

    def get_trainer_endpoints(self) -> list[str]:
        """The workers' endpoints; empty if workers are known by number only."""
        self._generate_if_possible()
        return self._worker_endpoints

    def rendezvous_endpoints(self) -> list[str]:
        """An endpoint for each worker, the first of which hosts the rendezvous of collectives.

        They are the workers' endpoints; for workers known by number only, those of
        PADDLE_TRAINER_ENDPOINTS, one for each. Raises ValueError naming the variable.
        """
        trainers = self.get_trainer_endpoints()
        if trainers:
            return trainers
        found = list(PADDLE_TRAINER_ENDPOINTS.require())
        if len(found) != self.worker_num():
            got = f"{len(found)} endpoints, but there are {self._workers} workers"
            raise ValueError(PADDLE_TRAINER_ENDPOINTS.message(got))
        return found

    def get_pserver_endpoints(self) -> list[str]:
        """The servers' endpoints; empty for collective training."""
        self._generate_if_possible()
        return self._server_endpoints

    def _generate_if_possible(self) -> None:
        if type(self)._generate is not RoleMakerBase._generate:
            self.generate_role()

    def to_string(self) -> str:
        """The role, the number and all endpoints as one line."""
        return (
            f"role: {self._role}, current_id: {self._current_id}, "
            f"worker_endpoints: {self._worker_endpoints}, "
            f"server_endpoints: {self._server_endpoints}"
        )

    # ---- collectives between processes ----

    def all_gather(self, input: float) -> list[float]:
        """Gather one number from every process, workers first, then servers; int or float
        everywhere.

        Like the other collectives, it does nothing in a role maker that determines no role, with a
        warning; the result is empty then.
        """
        if self._has_no_role("all gather"):
            return []
        _expect_number(input)
        return self._meeting().gather(input, "all")

    def all_reduce_worker(
        self, input: Sequence[float] | Array, output: list[float] | Array, mode: str = "sum"
    ) -> None:
        """Reduce one-dimensional `input` over the workers and write the result to `output`.

        `mode` is `sum`, `min` or `max`; both have the same length on every worker. Does nothing on
        a server, with a warning. Raises ValueError for another mode, length or rank.
        """
        if self._has_no_role("all reduce worker"):
            return
        if mode not in MODES:
            raise ValueError(f"all_reduce_worker: unknown mode {mode!r}, expected sum, min or max")
        vector, result = as_vector(input, "input"), as_vector(output, "output")
        if len(vector) != len(result):
            raise ValueError(f"output has {len(result)} elements, but input has {len(vector)}")
        if not self.is_worker():
            warnings.warn("all_reduce_worker does nothing on a server", stacklevel=2)
            return
        alone = self.worker_num() == 1
        output[:] = _like(output, vector if alone else self._meeting().all_reduce(vector, mode))

    def barrier_worker(self) -> None:
        """Wait until every worker has called this; does nothing on a server."""
        if self._has_no_role("barrier worker"):
            return
        if self.is_worker() and self.worker_num() > 1:
            self._meeting().barrier("workers")

    def barrier_all(self) -> None:
        """Wait until every worker and every server has called this."""
        if not self._has_no_role("barrier all"):
            self._meeting().barrier("all")

    def _has_no_role(self, what: str) -> bool:
        """Whether this class determines no role; warns that it lacks a collective."""
        is_bare = type(self)._generate is RoleMakerBase._generate
        if is_bare:
            warnings.warn(f"{type(self).__name__} does not have {what}", stacklevel=3)
        return is_bare

    def finalize(self) -> None:
        """Leave the collectives of this role maker."""
        if self._met is not None:
            self._met.close()
            self._met = None

    def _meeting(self) -> Meeting:
        """The rendezvous of all processes: at PADDLE_GLOO_ENDPOINT, by default trainer 0's
        endpoint.
        """
        self.generate_role()
        if self._met is None:
            servers, rank = len(self._server_endpoints), self._current_id
            rank += 0 if self._role == Role.WORKER else self._workers
            self._met = Meeting(self._place(), self._workers, servers, rank, self._patience())
        return self._met

    def _patience(self) -> float | None:
        """Timeout of a collective in seconds, None for FLAGS_rpc_deadline."""
        return None

    def _place(self) -> str:
        alone = self._workers == 1 and not self._server_endpoints
        if alone or self._worker_endpoints:
            return self._worker_endpoints[0] if self._worker_endpoints else "127.0.0.1:0"
        return PADDLE_GLOO_ENDPOINT.require()


def _expect_number(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"all_gather takes an int or a float, not {type(value).__name__}")


def _like(output: list[float] | Array, result: Array) -> list[float] | Array:
    return result if isinstance(output, np.ndarray) else result.tolist()
