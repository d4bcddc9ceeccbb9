"""Tests of fleets; scripts that they run in processes of their own are no tests."""

import pytest

from tests.fleet.programs import ROLE_VARIABLES

collect_ignore = ["scripts"]


@pytest.fixture
def no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all variables that define the role of this process."""
    for name in ROLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
