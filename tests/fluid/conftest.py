"""What tests of the front end share."""

import pytest

import fluid

collect_ignore = ["scripts"]
"""Old scripts, which tests run as programs of their own."""


@pytest.fixture
def exe() -> fluid.Executor:
    """Give an executor on the CPU."""
    return fluid.Executor(fluid.CPUPlace())
