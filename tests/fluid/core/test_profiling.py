"""`core.enable_profiler` and its enums, which drive `fluid.profiler`."""

from pathlib import Path

import pytest

import fluid
from fluid import core


def test_the_native_profiler_is_that_of_fluid(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert str(core.ProfilerState.kCPU) == "ProfilerState.kCPU"
    core.set_tracer_option(core.TracerOption.kDefault)
    core.enable_profiler(core.ProfilerState.kDisabled)
    assert not core.is_profiler_enabled()
    core.enable_profiler(core.ProfilerState.kCPU)
    assert core.is_profiler_enabled() and fluid.profiler.recorder() is not None
    core.reset_profiler()
    core.disable_profiler(core.EventSortingKey.kTotal, str(tmp_path / "profile"))
    assert not core.is_profiler_enabled() and (tmp_path / "profile").exists()
    assert "Place: CPU" in capsys.readouterr().out
