"""The short form of the attack with hostile values, and how it counts runs that end a process."""

import os
from collections import Counter
from typing import Any

import pytest

from fluid.cli.limits import at_most
from tools.verify.attacks import values
from tools.verify.attacks.hostile_values import calls
from tools.verify.attacks.values import CRASH, RESULT, Found, Unit
from tools.verify.support.children import Limits

EVERY = 149
"""Takes few calls, spread over all ops."""

CALLS = [call for call in calls()[::EVERY] if call.values]


@pytest.mark.parametrize("unit", [Unit(call, bool(i % 2)) for i, call in enumerate(CALLS)])
def test_a_sample_of_all_ops(unit: Unit) -> None:
    with at_most(Limits().memory):
        result = values.attempt(unit)
    assert result.counts.total() > 0
    assert not result.failures


def test_runs_after_a_crash_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(unit: Unit, seconds: float, progress: Any) -> Found:
        for index in range(unit.start, 9 if unit.stop is None else unit.stop):
            progress(index)
            if index == 3:
                os._exit(7)
        return Found(Counter({RESULT: (unit.stop or 9) - unit.start}), [])

    monkeypatch.setattr(values, "attempt", attempt)
    (result,) = values.run([Unit(calls("scatter_nd_add")[0], False)], Limits(), workers=1)
    assert result.counts == {RESULT: 8, CRASH: 1}
    ((kind, text),) = result.failures
    assert kind == CRASH
    assert text.startswith("x0: first = inf: crash: exit code 7")
