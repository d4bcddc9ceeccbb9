"""Spin: waits poll before they sleep, unless polling was in vain."""

from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from runtime.collective import slices
from runtime.collective.slices import Spin


def looks(spin: Spin, readiness: Iterator[bool], limit: float = 1.0) -> int:
    """How often a wait looked."""
    looked = count()

    def is_ready() -> bool:
        next(looked)
        return next(readiness)

    spin.poll(is_ready, limit)
    return next(looked)


def test_waits_after_polling_in_vain_do_not_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(slices, "monotonic", lambda: float(next(clock)))
    spin = Spin(4.0)
    waits = [looks(spin, repeat(False), 10.0) for _ in range(8)]
    assert [n > 1 for n in waits] == [True, False, True, False, False, True, False, False]
    for _ in range(2):
        looks(spin, repeat(False), 10.0)
    assert looks(spin, chain([False, True]), 10.0) == 2  # it polls, and then again each time
    assert looks(spin, chain([False, False, True]), 10.0) == 3
    assert looks(Spin(0.0), repeat(False)) == looks(spin, repeat(False), 0.0) == 1
