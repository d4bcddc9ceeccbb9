"""CompiledProgram and its strategies: a plain run on one device, a clear word on several."""

from typing import Any

import numpy as np
import pytest

import fluid
from runtime.errors import PlaceError

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


@pytest.fixture
def loss(exe: Any) -> fluid.Variable:
    found = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 1))
    fluid.optimizer.SGD(0.1).minimize(found)
    exe.run(fluid.default_startup_program())
    return found


def compiled(**options: Any) -> fluid.CompiledProgram:
    return fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(**options)


def test_it_runs_as_the_program(loss: fluid.Variable, exe: Any) -> None:
    feed = {"x": np.ones((4, 3), "float32")}
    main = fluid.default_main_program()
    strategies = {
        "build_strategy": fluid.BuildStrategy(),
        "exec_strategy": fluid.ExecutionStrategy(),
    }
    programs = [
        main,
        fluid.CompiledProgram(main, fluid.BuildStrategy()),
        compiled(loss_name=loss.name, **strategies),
        compiled(loss_name=loss.name, places=[CPU]),
        compiled(loss_name=loss.name, places=CPU),
    ]
    found = [exe.run(program, feed=feed, fetch_list=[loss])[0] for program in programs]
    assert all(value.shape == (1,) for value in found)
    steps = np.diff(np.ravel(found))
    assert np.allclose(steps, steps[0]) and steps[0] < 0
    assert exe.counters.compiles == 2


def test_its_program_is_what_is_saved(loss: fluid.Variable, exe: Any, tmp_path: Any) -> None:
    program = fluid.CompiledProgram(fluid.default_main_program())
    fluid.io.save_persistables(exe, str(tmp_path), program)
    fluid.io.load_persistables(exe, str(tmp_path), program)
    assert len(list(tmp_path.iterdir())) == 3


def test_several_devices_come_later(loss: fluid.Variable, exe: Any, monkeypatch: Any) -> None:
    two = compiled(loss_name=loss.name, places=[CPU, CPU])
    with pytest.raises(PlaceError, match="is to run on 2 devices") as caught:
        exe.run(two, feed={"x": np.ones((4, 3), "float32")})
    assert "CPU_NUM=1" in str(caught.value)
    monkeypatch.setenv("CPU_NUM", "3")
    with pytest.raises(PlaceError, match="is to run on 3 devices"):
        exe.run(compiled(loss_name=loss.name), feed={})


def test_places_are_of_the_executor_s_kind(loss: fluid.Variable, exe: Any) -> None:
    with pytest.raises(AssertionError, match="Place type not match"):
        exe.run(compiled(loss_name=loss.name, places=[fluid.CUDAPlace(0)]), feed={})
    with pytest.raises(TypeError, match=r"places are CPUPlace.*, not str"):
        compiled(loss_name=loss.name, places="cpu")


def test_what_cannot_be_compiled(loss: fluid.Variable) -> None:
    with pytest.raises(TypeError, match=r"takes a fluid\.Program, but received str"):
        fluid.CompiledProgram("main")
    with pytest.raises(AssertionError, match="pass the loss_name"):
        compiled()
    again = compiled(loss_name=loss.name)
    with pytest.raises(AssertionError, match="Already compiled with parallel"):
        again.with_data_parallel(loss_name=loss.name)
    plain = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(ValueError, match="share_vars_from is a CompiledProgram"):
        compiled(loss_name=loss.name, share_vars_from=plain)
    compiled(loss_name=loss.name, share_vars_from=again)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "gradient_scale_strategy",
            fluid.BuildStrategy.GradientScaleStrategy.Customized,
            "Customized is for several devices",
        ),
        ("num_trainers", 2, "num_trainers is 2"),
        ("num_iteration_per_run", 5, "num_iteration_per_run is 5"),
    ],
)
def test_what_would_change_numbers_is_refused(
    loss: fluid.Variable, exe: Any, name: str, value: Any, message: str
) -> None:
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    setattr(execution if name in execution._defaults else build, name, value)
    program = compiled(loss_name=loss.name, build_strategy=build, exec_strategy=execution)
    with pytest.raises(ValueError, match=message):
        exe.run(program, feed={"x": np.ones((4, 3), "float32")})


def test_strategies_have_the_defaults_of_the_reference() -> None:
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    assert build.gradient_scale_strategy is build.GradientScaleStrategy.CoeffNumDevice
    assert (build.memory_optimize, build.fuse_broadcast_ops, build.trainers_endpoints) == (
        None,
        True,
        [],
    )
    assert (execution.num_threads, execution.num_iteration_per_drop_scope) == (0, 100)
    build.trainers_endpoints.append("a")
    assert fluid.BuildStrategy().trainers_endpoints == []


def test_a_setting_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="has no 'fuse_bn_act_op'; did you mean 'fuse_bn_act"):
        fluid.BuildStrategy().fuse_bn_act_op = True
    with pytest.raises(AttributeError, match="ExecutionStrategy has no 'threads'"):
        fluid.ExecutionStrategy().threads = 2
