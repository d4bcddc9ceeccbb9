"""Tests of fleets; scripts that they run in processes of their own are no tests."""

import pytest

from tests.fleet.programs import ROLE_VARIABLES

collect_ignore = ["scripts"]


@pytest.fixture
def no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no variable that says who this process is."""
    for name in ROLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
