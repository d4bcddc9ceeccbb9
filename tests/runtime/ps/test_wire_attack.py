"""A short form of `bench/attacks/wire.py`."""

from bench.attacks import wire


def test_malformed_calls_change_nothing():
    codes = wire.attack(200)
    assert codes["FAILED_PRECONDITION"] > 50
    assert codes["UNAUTHENTICATED"] > 10
    assert "UNKNOWN" not in codes
