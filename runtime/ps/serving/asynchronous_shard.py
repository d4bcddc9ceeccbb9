"""One server's part of an asynchronous job: each gradient is applied on arrival, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.service import ROWS, Gradient, Service

MAX_NUMBER = 1 << 62
"""The numbers of a sender's gradients are below this one."""


class AsynchronousShard:
    """Applies gradients one at a time. `step` counts them.

    `applied` has for each trainer its last sender, a name of its process, and the number of the
    last gradient of that one: a trainer has one sender at a time.
    """

    def __init__(self, service: Service, step: int = 0) -> None:
        self.service = service
        self.lock = RLock()
        self.step = step
        self.applied: dict[int, tuple[str, int]] = {}
        self._gradients = {gradient.name: gradient for gradient in service.gradients}

    def push(self, sender: str, number: int, trainer: int, name: str, array: Array) -> bool:
        """Apply a dense gradient; False if this number of a sender was applied before.

        Raises WireError for a gradient that does not belong to this server.
        """
        gradient = self._expected(name, array, trainer)
        if gradient.is_sparse or array.shape != gradient.shape:
            raise WireError(
                f"trainer {trainer} sent {name!r} {list(array.shape)}, expected "
                f"{'rows of a' if gradient.is_sparse else ''} {list(gradient.shape)}"
            )
        return self._apply(sender, number, trainer, {name: array})

    def push_rows(
        self, sender: str, number: int, trainer: int, name: str, rows: Array, values: Array
    ) -> bool:
        """Apply a sparse gradient; raises and returns as `push` does."""
        gradient = self._expected(name, values, trainer)
        height = gradient.shape[0]
        if not gradient.is_sparse or values.shape != (len(rows), *gradient.shape[1:]):
            raise WireError(f"trainer {trainer} sent rows of {name!r} {list(values.shape)}")
        if len(rows) and not 0 <= rows.min() <= rows.max() < height:
            raise WireError(f"a row of {name!r} is not among its {height}")
        return self._apply(sender, number, trainer, {name: values, name + ROWS: rows})

    def count(self, sender: str, number: int, trainer: int, name: str, array: Array) -> bool:
        """Add to a counter of the learning-rate schedule; returns as `push` does."""
        variable = self.service.variables().get(name)
        if self.service.counters.get(name) != trainer:
            variable = None
        if variable is None or variable.shape != array.shape or variable.dtype != array.dtype:
            raise WireError(f"counter {name[:200]!r} is not on server {self.service.endpoint}")
        with self.lock:
            if self._is_repeated(sender, number, trainer):
                return False
            self.service.count(name, array)
            return True

    def _expected(self, name: str, array: Array, trainer: int) -> Gradient:
        gradient = self._gradients.get(name)
        if gradient is None:
            raise WireError(f"gradient {name!r} does not belong to server {self.service.endpoint}")
        if str(array.dtype) != gradient.dtype or not 0 <= trainer < self.service.trainers:
            raise WireError(f"trainer {trainer} sent {name!r} as {array.dtype}")
        return gradient

    def _apply(self, sender: str, number: int, trainer: int, feeds: dict[str, Array]) -> bool:
        with self.lock:
            if self._is_repeated(sender, number, trainer):
                return False
            self.service.update(feeds, trainer)
            self.step += 1
            return True

    def _is_repeated(self, sender: str, number: int, trainer: int) -> bool:
        """Whether this number was already applied; if not, it is recorded. The lock is held."""
        last_sender, last = self.applied.get(trainer, (sender, 0))
        if last_sender == sender and number <= last:
            return True
        self.applied[trainer] = sender, number
        return False

    def read(self, names: Sequence[str]) -> list[Array]:
        """Return copies of variables, consistent between two updates."""
        with self.lock:
            variables = self.service.variables()
            return [np.array(variables[name]) for name in names]
