"""Sends gradients from a separate thread, for asynchronous trainers.

Gradients of several steps are merged before they are sent: the mean of dense ones, the rows of
sparse ones summed and divided by the number of gradients. With GEO, parameters are passed instead:
their change since they were last received is sent, divided by the number of trainers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from compiler.ir.types import Array
from runtime.ps.training.numbered_gradients import NumberedGradients
from runtime.ps.wire.peers import Peers

Given = tuple[Array, Array | None]


class Merging:
    """Asynchronous and half-asynchronous: queues of gradients, merged and sent by a thread.

    Up to `most` gradients of a variable are merged, and up to `waiting` of them are in its queue.
    """

    def __init__(self, gradients: NumberedGradients, most: int, waiting: int) -> None:
        self._gradients, self._most, self._waiting = gradients, most, waiting
        self._queues: dict[tuple[str, str], deque[Given]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._busy = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="fluid-ps-sends")
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive() and not self._ended

    def put(self, endpoint: str, name: str, array: Array, rows: Array | None) -> None:
        """Add a gradient to the queue of its variable, once there is room."""
        entry = array.copy(), None if rows is None else rows.copy()
        with self._changed:
            queue = self._queues.setdefault((endpoint, name), deque())
            self._changed.wait_for(lambda: len(queue) < self._waiting or self._error is not None)
            self._expect_running()
            queue.append(entry)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything queued is applied. Raises what sending raised."""
        with self._changed:
            self._changed.wait_for(
                lambda: (not self._busy and not any(self._queues.values())) or self._error
            )
            self._expect_running()

    def answers(self, names: Sequence[str], endpoints: Sequence[str]) -> bool:
        """Whether `recv` reads from this object instead of the servers."""
        return False

    def recv(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Array]:
        """Not supported: parameters are read from the servers."""
        raise KeyError(names[0])

    def stop(self) -> None:
        """Send what remains and end the thread. Raises what sending raised."""
        if self._thread.is_alive():
            self.flush()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _expect_running(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or any(self._queues.values()))
                if self._ended:
                    return
                work = self._taken()
                self._busy = True
                self._changed.notify_all()
            try:
                for (endpoint, name), gradients in work.items():
                    self._gradients.push(endpoint, name, *_merged(gradients))
            except Exception as error:
                self._error = error
                with self._changed:
                    self._changed.notify_all()
                raise
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _taken(self) -> dict[tuple[str, str], list[Given]]:
        """Take the gradients to merge next out of the queues."""
        taken: dict[tuple[str, str], list[Given]] = {}
        for key, queue in self._queues.items():
            if queue:
                taken[key] = [queue.popleft() for _ in range(min(self._most, len(queue)))]
        return taken


def _merged(given: Sequence[Given]) -> Given:
    """The mean of several gradients of one variable."""
    if len(given) == 1:
        return given[0]
    share = given[0][0].dtype.type(1.0 / len(given))
    if given[0][1] is None:
        return np.sum([array for array, _ in given], axis=0) * share, None
    rows = [rows for _, rows in given if rows is not None]
    return np.concatenate([array for array, _ in given]) * share, np.concatenate(rows)


class Geo:
    """GEO: `put` takes parameters, and `recv` returns their updated values.

    At a fixed interval, with T trainers and `known`, the server's value at the last exchange: delta
    = (now - known) / T is sent, and now += server - (known + delta); known = server. The rest of a
    trainer's change remains in its own parameters, and is sent with the next delta. `trainers`
    returns T; the servers have it, and are called once there is something to send.
    """

    def __init__(
        self,
        peers: Peers,
        gradients: NumberedGradients,
        steps: int,
        trainers: Callable[[], int],
        delta: str,
    ) -> None:
        self._peers, self._gradients = peers, gradients
        self._steps, self._trainers, self._delta = steps, trainers, delta
        self._now: dict[tuple[str, str], Array] = {}
        self._known: dict[tuple[str, str], Array] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self.is_running = True

    def start(self, endpoint: str, name: str, array: Array) -> None:
        """Record the first received value of a parameter."""
        self._known[endpoint, name] = array.copy()

    def put(self, endpoint: str, name: str, array: Array, rows: Array | None) -> None:
        """Store a block of a parameter; at a fixed interval its delta is sent."""
        key = endpoint, name.removesuffix(self._delta)
        if key not in self._known:
            self._known[key] = self._read(key)
        self._now[key] = array.copy()
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] % self._steps == 0:
            self._exchange(key)

    def _exchange(self, key: tuple[str, str]) -> None:
        now, base = self._now[key], self._known[key]
        delta = (now - base) / now.dtype.type(self._trainers())
        self._gradients.push(key[0], key[1] + self._delta, delta, None)
        server = self._read(key)
        self._now[key] = now + (server - (base + delta))
        self._known[key] = server

    def _read(self, key: tuple[str, str]) -> Array:
        header = {"do": "read", "names": [key[1]], "step": 0}
        return self._peers.fetch(key[0], header)[1][0]

    def flush(self) -> None:
        """Nothing is pending: deltas are sent immediately."""

    def answers(self, names: Sequence[str], endpoints: Sequence[str]) -> bool:
        """Whether all variables were stored."""
        return all(key in self._now for key in zip(endpoints, names, strict=True))

    def recv(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Array]:
        """Return the parameters as stored, or as updated by the exchange."""
        return [self._now[key] for key in zip(endpoints, names, strict=True)]

    def stop(self) -> None:
        """Send the deltas since the last exchange."""
        for key in self._now:
            if self._counts[key] % self._steps:
                self._exchange(key)
        self.is_running = False
