"""Programs made, run and dropped leave nothing behind (the long form: `bench/attack.py programs`)."""

from bench.attacks.programs import KINDS, attack


def test_programs_made_and_dropped_leave_nothing_behind() -> None:
    count = 25 * len(KINDS)
    before, after = attack(count, warm_up=10 * len(KINDS))
    assert not after.grown(before, count), (before, after)
