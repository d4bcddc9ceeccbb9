"""CompiledProgram and its strategies, on one device; several are in tests/fluid/data_parallel."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Program

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


@pytest.fixture
def loss(exe: Any) -> fluid.Variable:
    result = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 1))
    fluid.optimizer.SGD(0.1).minimize(result)
    exe.run(fluid.default_startup_program())
    return result


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
    results = [exe.run(program, feed=feed, fetch_list=[loss])[0] for program in programs]
    assert all(value.shape == (1,) for value in results)
    steps = np.diff(np.ravel(results))
    assert np.allclose(steps, steps[0]) and steps[0] < 0
    assert exe.counters.compiles == 2


def test_its_program_is_what_is_saved(loss: fluid.Variable, exe: Any, tmp_path: Any) -> None:
    program = fluid.CompiledProgram(fluid.default_main_program())
    fluid.io.save_persistables(exe, str(tmp_path), program)
    fluid.io.load_persistables(exe, str(tmp_path), program)
    assert len(list(tmp_path.iterdir())) == 3


def test_places_are_of_the_executor_s_kind(loss: fluid.Variable, exe: Any) -> None:
    with pytest.raises(AssertionError, match="Place type not match"):
        exe.run(compiled(loss_name=loss.name, places=[fluid.CUDAPlace(0)]), feed={})
    with pytest.raises(TypeError, match=r"places are CPUPlace.*, not str"):
        compiled(loss_name=loss.name, places="cpu")


def test_what_cannot_be_compiled(loss: fluid.Variable) -> None:
    with pytest.raises(TypeError, match=r"takes a fluid\.Program, but received str"):
        fluid.CompiledProgram("main")
    with pytest.raises(AssertionError, match="pass loss_name"):
        compiled()
    again = compiled(loss_name=loss.name)
    with pytest.raises(AssertionError, match="Already compiled with parallel"):
        again.with_data_parallel(loss_name=loss.name)
    with pytest.raises(TypeError, match="loss_name must be the name of a variable"):
        compiled(loss_name=loss)
    with pytest.raises(ValueError, match="no variable 'los' in the program"):
        compiled(loss_name="los")
    assert compiled(loss_name="").is_parallel  # as scripts write for gradients without a loss


def test_what_is_found_out_when_it_is_first_run(loss: fluid.Variable) -> None:
    scope, options = fluid.global_scope(), {"loss_name": loss.name}
    plain = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(ValueError, match="share_vars_from is not data-parallel"):
        compiled(**options, share_vars_from=plain)._compile(scope, CPU)
    never_run = compiled(**options)
    with pytest.raises(ValueError, match="share_vars_from is not compiled and executed"):
        compiled(**options, share_vars_from=never_run)._compile(scope, CPU)
    once = compiled(**options)._compile(scope, CPU)
    compiled(**options, share_vars_from=once)._compile(scope, CPU)
    with pytest.raises(ValueError, match="compiled in another scope"):
        once._compile(fluid.Scope(), CPU)
    with pytest.raises(ValueError, match=r"compiled on CPUPlace, not on CUDAPlace\(0\)"):
        once._compile(scope, fluid.CUDAPlace(0))


def test_the_gradient_of_the_loss_is_fed(loss: fluid.Variable, exe: Any) -> None:
    build = fluid.BuildStrategy()
    build.gradient_scale_strategy = build.GradientScaleStrategy.Customized
    program = compiled(loss_name=loss.name, build_strategy=build)
    feed = {"x": np.ones((4, 3), "float32")}
    with pytest.raises(fluid.core.EnforceNotMet, match=f"missing feed: '{loss.name}@GRAD'"):
        exe.run(program, feed=feed)
    feed[f"{loss.name}@GRAD"] = np.array([0.5], "float32")
    (gradient,) = exe.run(program, feed=feed, fetch_list=["fc_0.b_0@GRAD"])
    assert gradient.tolist() == [0.5]


def test_several_steps_a_run(loss: fluid.Variable, exe: Any) -> None:
    feed, many = {"x": np.ones((4, 3), "float32")}, fluid.ExecutionStrategy()
    many.num_iteration_per_run = 3
    (last,) = exe.run(
        compiled(loss_name=loss.name, exec_strategy=many), feed=feed, fetch_list=[loss]
    )
    (next_one,) = exe.run(feed=feed, fetch_list=[loss])
    (after,) = exe.run(feed=feed, fetch_list=[loss])
    assert next_one < last and np.allclose(after - next_one, next_one - last)


def test_a_dry_run_computes_nothing(loss: fluid.Variable, exe: Any) -> None:
    dry = fluid.ExecutionStrategy()
    dry._dry_run = True
    program = compiled(loss_name=loss.name, exec_strategy=dry)
    before = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    assert exe.run(program) == []
    assert [value.size for value in exe.run(program, fetch_list=[loss])] == [0]
    assert np.array_equal(fluid.global_scope().find_var("fc_0.w_0").get_tensor(), before)


def test_values_of_one_device_unmerged(loss: fluid.Variable, exe: Any) -> None:
    feed = {"x": np.ones((4, 3), "float32")}
    program = compiled(loss_name=loss.name)
    (values,) = exe.run(program, feed=feed, fetch_list=[loss], return_merged=False)
    assert np.array(values).shape == (1, 1)


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


def test_a_model_is_run_by_a_config_for_inference(tmp_path: Path) -> None:
    with fluid.program_guard(Program(), Program()):
        y = layers.fc(layers.data("x", [4]), 3)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        fluid.io.save_inference_model(str(tmp_path), ["x"], [y], executor)
        main = fluid.default_main_program()
        x = np.ones((2, 4), "float32")
        wanted = executor.run(main, feed={"x": x}, fetch_list=[y])[0]
    compiled = fluid.CompiledProgram(main)
    assert (compiled._program, compiled._is_inference, compiled._compiled) == (main, False, False)
    assert (compiled._scope, compiled._place, compiled._executor) == (None, None, None)
    config = fluid.core.AnalysisConfig(str(tmp_path))
    assert compiled._with_inference_optimize(config) is compiled and compiled._is_inference
    result = executor.run(compiled, feed=[fluid.core.PaddleTensor(x)])
    np.testing.assert_allclose(result[0].as_ndarray(), wanted, rtol=1e-6)
    for call, message in [
        (lambda: executor.run(compiled, feed={"x": x}), "a list of PaddleTensors"),
        (compiled.with_data_parallel, "both data parallel and inference"),
        (lambda: compiled._with_inference_optimize(config), "Already compiled with inference"),
        (lambda: fluid.CompiledProgram(main)._with_inference_optimize(3), "not int"),
    ]:
        with pytest.raises(AssertionError, match=message):
            call()
