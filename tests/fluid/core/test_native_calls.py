"""Small calls of the native module: rank tables of scopes, the profiler, errors, versions."""

from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid import core, layers
from fluid.framework import Program


def test_a_rank_table_is_read_from_the_scope() -> None:
    scope, main = fluid.Scope(), Program()
    with fluid.program_guard(main, Program()):
        x = layers.data("x", [2], lod_level=2)
        table = layers.control_flow.lod_rank_table(x, level=1)
        table.persistable = True
    tensor = fluid.create_lod_tensor(
        np.ones((6, 2), "float32"), [[2, 1], [1, 3, 2]], core.CPUPlace()
    )
    fluid.Executor().run(main, feed={"x": tensor}, scope=scope)
    variable = scope.find_var(table.name)
    assert variable.get_lod_rank_table().items() == [(1, 3), (2, 2), (0, 1)]
    scope.var("y").get_tensor().set(np.ones((2, 3)), core.CPUPlace())
    with pytest.raises(core.EnforceNotMet, match="not a rank table"):
        scope.var("y").get_lod_rank_table()


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


def test_errors_and_versions() -> None:
    with pytest.raises(core.EnforceNotMet, match="test exception"):
        core.__unittest_throw_exception__()
    assert core._is_program_version_supported(0)
    core._set_fuse_parameter_group_size(3)
    core._set_fuse_parameter_memory_size(131072)
    fluid.Scope()._remove_from_pool()
