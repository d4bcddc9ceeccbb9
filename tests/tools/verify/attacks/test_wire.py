"""A short form of `tools/verify/attacks/wire.py`."""

from tools.verify.attacks import wire


def test_hostile_calls_with_the_token_change_nothing():
    codes = wire.attack(250, token=True)
    assert codes["FAILED_PRECONDITION"] > 50 and codes["OK"] > 10


def test_hostile_calls_without_the_token_are_refused():
    codes = wire.attack(100, token=False)
    assert set(codes) == {"UNAUTHENTICATED", "half open", "garbage"}
