"""Faults of ranks, once each: the others name the rank in time, and nothing is left.

`tools/verify/faults.py` has all of them, and counts.
"""

import pytest

from tools.verify.faults import Case, cases

SHORT = (
    "separate: SIGKILL of rank 1 during",
    "separate: SIGKILL of rank 0 before",
    "separate: SIGSTOP of rank 0",
    "separate: two of a rank",
    "separate: calls, swapped in one step",
    "pool: SIGKILL of a worker during",
    "pool: SIGSTOP of a worker",
    "pool: a module differs, dtype",
    "pool: SIGKILL of the caller",
    "pool: SIGINT of the caller",
)
CASES = [case for case in cases() if case.name in SHORT]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault_is_named(case: Case) -> None:
    outcome = case.run(case.deadline)
    assert not outcome.problems, "\n".join(outcome.problems)


def test_every_short_case_is_there() -> None:
    assert sorted(case.name for case in CASES) == sorted(SHORT)
