"""Versions of the elements of tensors: whether they may have changed since they were read.

What steps compute from state that they only read, such as packed weights, is computed once, and
again after the state changed. Every write gives a tensor a new version: methods such as
`LoDTensor.set` directly, compiled steps through a `TensorWriter`. Elements that are *exposed* have
no version: code outside has the array itself, and nobody would notice what it writes.

Versions come from one count of the process and are never used twice. So they are right with
several threads too: a version is given after the write, and whoever reads takes it before.
"""

from __future__ import annotations

from itertools import count
from weakref import ref

from runtime.gpu.streams import StreamOrder

_numbers = count(1)


def next_version() -> int:
    """Return a version that no tensor has had."""
    return next(_numbers)


class Clock:
    """Counts how often an array of a family of tensors was replaced by another object.

    `written` counts writes of values: by `set`, and by programs that change state; `by_devices`
    counts those that were steps of programs that run on several devices, and `device_writes` maps
    the names that such a program changes to the count after its last step. `contents` differs
    after the version of any tensor of the family may have changed. `streams` orders the steps that
    use device copies of the tensors.
    """

    __slots__ = ("by_devices", "contents", "device_writes", "now", "streams", "written")

    def __init__(self) -> None:
        self.now = 0
        self.written = 0
        self.by_devices = 0
        self.device_writes: dict[frozenset[str], int] = {}
        self.contents = 0
        self.streams = StreamOrder()

    def record_devices(self, names: frozenset[str]) -> None:
        """Record that a step on several devices changed the tensors of these names."""
        self.written += 1
        self.by_devices += 1
        self.device_writes[names] = self.by_devices

    def tick(self) -> None:
        """Record that an array was replaced."""
        self.now += 1
        self.contents = next(_numbers)


class TensorWriter:
    """Writes into the same tensors again and again, as the steps of its owner do.

    Between `begin` and `end` these tensors have no version.
    """

    __slots__ = ("_clock", "_owner", "latest")

    def __init__(self, clock: Clock, owner: object) -> None:
        self._clock = clock
        self._owner = ref(owner)
        self.latest: int | None = 0
        """The number of its latest write; None while it writes."""

    @property
    def is_gone(self) -> bool:
        """Whether its owner is gone, so that it writes no more."""
        return self._owner() is None

    def begin(self) -> None:
        """Record that it writes from now on."""
        self.latest = None
        self._clock.contents = next(_numbers)

    def end(self) -> None:
        """Record that it has written."""
        self.latest = next(_numbers)
        self._clock.contents = next(_numbers)
