"""What tests of the front end share."""

import pytest

import fluid


@pytest.fixture
def exe() -> fluid.Executor:
    """Give an executor on the CPU."""
    return fluid.Executor(fluid.CPUPlace())
