"""A short form of `bench/chaos.py`."""

from bench import chaos


def test_faults_lose_nothing_and_double_nothing():
    assert chaos.attack("wait", 2, 250, seed=1) is not None
