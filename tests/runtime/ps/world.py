"""A server in a thread, whose update subtracts the mean of the gradients, and its trainers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from runtime.errors import WireError
from runtime.ps.service import ROWS, Gradient, Service
from runtime.ps.serving.server import Server
from runtime.ps.settings import Settings
from runtime.ps.training.trainer import Trainer
from tests.support.ports import free_endpoint

SIZE = 1000
FAST = {
    "heartbeat": 0.2, "lost_after": 1.0, "return_within": 0.5, "reconnect": 3.0, "deadline": 20.0
}  # fmt: skip


def make_service(endpoint: str, trainers: int, variables: dict[str, Any]) -> Service:
    """A service with one vector `w`, and a table `t` of 50 rows."""

    def update(feeds: Any, trainer: int) -> None:
        for index in range(trainers):
            variables["w"][...] -= feeds[f"g.trainer_{index}"] / trainers
            rows = feeds[f"s.trainer_{index}{ROWS}"]
            np.subtract.at(variables["t"], rows, feeds[f"s.trainer_{index}"] / trainers)

    def assign(name: str, array: Any) -> None:
        variables[name][...] = array

    def nothing(*_: Any) -> None:
        return None

    gradients = [Gradient(f"g.trainer_{t}", "float32", (SIZE,), False, t) for t in range(trainers)]
    gradients += [Gradient(f"s.trainer_{t}", "float32", (50, 4), True, t) for t in range(trainers)]
    return Service(
        endpoint, 0, trainers, True, tuple(gradients), lambda: variables, update, assign, nothing,
        nothing, nothing, {},
    )  # fmt: skip


class World:
    """One server, and what its `serve` raised."""

    def __init__(
        self, trainers: int, settings: Settings, endpoints: list[str] | None = None, number: int = 0
    ) -> None:
        self.endpoints, self.number = endpoints or [free_endpoint()], number
        self.endpoint = self.endpoints[number]
        self.settings, self.trainers = settings, trainers
        self.variables = {
            "w": np.zeros(SIZE, np.float32), "t": np.zeros((50, 4), np.float32)
        }  # fmt: skip
        self.errors: list[BaseException] = []
        self.start()

    def start(self) -> None:
        """Start the server."""
        self.server = Server(self.endpoints, self.number, self.settings)
        self.server.attach(self.service())
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def service(self) -> Service:
        """What the server serves."""
        return make_service(self.endpoint, self.trainers, self.variables)

    def _serve(self) -> None:
        try:
            self.server.serve()
        except WireError as error:
            self.errors.append(error)

    def end(self) -> None:
        """End the server as a signal does."""
        self.server._stopping.set()
        self.thread.join(10)

    def trainer(self, number: int, settings: Settings | None = None) -> Trainer:
        """A trainer that receives `w`."""
        trainer = Trainer(number, [self.endpoint], settings or self.settings)
        trainer.subscribe({self.endpoint: ["w"]})
        return trainer


def send(trainer: Trainer, endpoint: str, value: float) -> None:
    """Send the gradients of a step."""
    dense = np.full(SIZE, value, np.float32)
    rows = np.array([3, 3, 7])
    sparse = np.full((3, 4), value, np.float32)
    names = [f"g.trainer_{trainer.number}", f"s.trainer_{trainer.number}"]
    trainer.send(names[:1], [endpoint], [dense], None, 0, False, True)
    trainer.send(names[1:], [endpoint], [sparse], [rows], 0, False, True)
    trainer.send_barrier([endpoint], 0, False)


def receive(trainer: Trainer, endpoint: str) -> Any:
    """Receive `w` after a step."""
    return trainer.recv(["w"], [endpoint], 0)[0]


@contextmanager
def world(trainers: int = 2, **settings: Any) -> Iterator[World]:
    """A server that is gone behind the block."""
    created = World(trainers, Settings.from_env({}, FAST | settings))
    try:
        yield created
    finally:
        created.end()
