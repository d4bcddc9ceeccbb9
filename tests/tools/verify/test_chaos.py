"""A short form of `tools/verify/chaos.py`."""

from tools.verify import chaos


def test_faults_lose_nothing_and_double_nothing():
    assert chaos.attack("wait", 2, 250, seed=1) is not None
