"""Tests of the front end; scripts that they run in processes of their own are no tests.

Tests of several devices share processes, which take a second or two to start.
"""

from collections.abc import Iterator

import pytest

import fluid
from fluid.data_parallel.devices import Devices

collect_ignore = ["scripts"]


@pytest.fixture(scope="session")
def kept_devices() -> Iterator[Devices]:
    """Keep the processes of two CPU devices until the last test that needs them."""
    devices = Devices(fluid.cpu_places(2), fluid.Scope())
    devices.pool()
    yield devices
    devices.pool().close()


@pytest.fixture
def two_devices(kept_devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let data-parallel programs run on two CPU devices."""
    kept_devices.pool()
    monkeypatch.setenv("CPU_NUM", "2")
