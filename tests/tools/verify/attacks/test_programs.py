"""Programs made, run and dropped leave nothing behind (the long form: `tools/verify/attack.py programs`)."""

from tools.verify.attacks.programs import KINDS, attack


def test_programs_made_and_dropped_leave_nothing_behind() -> None:
    """What leaks grows every time; what other threads of the process do grows once."""
    count = 25 * len(KINDS)
    readings = [attack(count, warm_up=10 * len(KINDS)) for _ in range(3)]
    grown = [set(after.grown(before, count)) for before, after in readings]
    assert not set.intersection(*grown), readings
