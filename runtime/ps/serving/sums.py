"""Sums over the servers of a job: each stores its contribution, and requests those of the others.

Contributions of past steps are kept, because a server that restarts from a snapshot repeats these
steps long after the others have finished them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError

KEPT_STEPS = 4096
"""Number of steps whose contributions are kept."""

Ask = Callable[[str, str, int], bytes]
"""Requests from the server of an endpoint its contribution to a name at a step."""


class Sums:
    """The object that modules of a server call `parameter_server`; it supports sums only."""

    def __init__(self, endpoints: Sequence[str], number: int, ask: Ask, deadline: float) -> None:
        self._endpoints, self._number, self._ask = endpoints, number, ask
        self._deadline = deadline
        self._kept: dict[str, dict[int, bytes]] = {}
        self.changed = Condition()
        self.step = 0

    def sum_over_servers(self, name: str, array: Array) -> Array:
        """The sum of one array from each server, in the order of endpoints."""
        self.put(name, self.step + 1, array.tobytes())
        total = np.zeros_like(array)
        for number, endpoint in enumerate(self._endpoints):
            part = array
            if number != self._number:
                raw = self._ask(endpoint, name, self.step + 1)
                part = np.frombuffer(_expect_size(raw, array, endpoint), array.dtype)
            total += part.reshape(array.shape)
        return total

    def put(self, name: str, step: int, raw: bytes) -> None:
        """Store this server's contribution to a step."""
        with self.changed:
            steps = self._kept.setdefault(name, {})
            steps[step] = raw
            steps.pop(step - KEPT_STEPS, None)
            self.changed.notify_all()

    def get(self, name: str, step: int, ended: Callable[[], bool]) -> bytes:
        """Wait for this server's contribution to a step and return it.

        Raises WireError past the deadline, or if `ended` becomes true first.
        """

        def found() -> bytes | None:
            return self._kept.get(name, {}).get(step)

        with self.changed:
            self.changed.wait_for(lambda: found() is not None or ended(), self._deadline)
            raw = found()
        if raw is None:
            raise WireError(f"no contribution to {name!r} at step {step} within {self._deadline} s")
        return raw

    def kept(self) -> dict[str, dict[int, bytes]]:
        """A copy of all contributions, for a snapshot."""
        with self.changed:
            return {name: dict(steps) for name, steps in self._kept.items()}


def _expect_size(raw: bytes, array: Array, endpoint: str) -> bytes:
    if len(raw) != array.nbytes:
        raise WireError(f"server {endpoint} contributed {len(raw)} bytes, expected {array.nbytes}")
    return raw
