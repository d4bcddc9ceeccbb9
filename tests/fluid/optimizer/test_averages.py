"""Averages of parameters, slow copies of them, and what cannot be had."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers, optimizer
from fluid.framework import Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def falling() -> Variable:
    """Return a loss whose gradient by `w`, which starts at 1, is always 1."""
    start = fluid.initializer.Constant(1.0)
    weight = layers.create_parameter([1], "float32", "w", default_initializer=start)
    return layers.mean(weight)


def value(name: str = "w") -> float:
    return float(np.asarray(fluid.global_scope().find_var(name).get_tensor()).ravel()[0])


def steps(count: int) -> fluid.Executor:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for _ in range(count):
        executor.run()
    return executor


def test_averages_over_the_latest_steps() -> None:
    optimizer.SGD(0.1).minimize(falling())
    average = optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=4)
    executor = steps(3)
    assert value() == pytest.approx(0.7)
    with average.apply(executor):
        # A window of the first two steps is closed; the third one's value came to it.
        assert value() == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert value() == pytest.approx(0.7)


def test_averages_may_stay_until_they_are_taken_out() -> None:
    optimizer.SGD(0.1).minimize(falling())
    average = optimizer.ModelAverage(0.5, 2, 4, name="mine")
    assert average.get_opti_var_name_list()[0] == "w_mine_sum_1_0"
    executor = steps(3)
    with average.apply(executor, need_restore=False):
        pass
    assert value() == pytest.approx(0.8)
    average.restore(executor)
    assert value() == pytest.approx(0.7)


def test_moving_averages_are_corrected_for_their_start() -> None:
    optimizer.SGD(0.1).minimize(falling())
    average = optimizer.ExponentialMovingAverage(0.5)
    average.update()
    executor = steps(3)
    wanted = (0.9 * 0.125 + 0.8 * 0.25 + 0.7 * 0.5) / 0.875
    for _ in range(2):  # The second time as the first: the reference corrects what it corrected.
        with average.apply(executor):
            assert value() == pytest.approx(wanted)
        assert value() == pytest.approx(0.7)


def test_the_decay_of_moving_averages_may_grow() -> None:
    optimizer.SGD(0.1).minimize(falling())
    count = layers.cast(layers.autoincreased_step_counter(begin=0), "float32")
    average = optimizer.ExponentialMovingAverage(0.999, thres_steps=count, name="mine_")
    average.update()
    steps(2)
    assert value("scheduled_ema_decay_rate") == pytest.approx(2 / 11)
    assert value("mine_w_ema_0") == pytest.approx(0.9 * 0.9 * 2 / 11 + 0.8 * 9 / 11)


def test_some_parameters_are_not_averaged() -> None:
    attr = fluid.ParamAttr(name="w", do_model_average=False)
    optimizer.SGD(0.1).minimize(layers.mean(layers.fc(layers.data("x", [2]), 1, param_attr=attr)))
    optimizer.ModelAverage(0.5)
    averaged = [op for op in default_main_program().global_block().ops if op.inputs.get("param")]
    assert [op.input("param") for op in averaged] == [["fc_0.b_0"]]


def test_lookahead_interpolates_every_k_steps() -> None:
    optimizer.LookaheadOptimizer(optimizer.SGD(0.1), alpha=0.5, k=2).minimize(falling())
    executor = steps(1)
    assert (value(), value("w@SLOW")) == pytest.approx((0.9, 1.0))
    executor.run()
    assert (value(), value("w@SLOW")) == pytest.approx((0.9, 0.9))
    executor.run()
    executor.run()
    assert (value(), value("w@SLOW")) == pytest.approx((0.8, 0.8))


def test_program_of_a_pipeline_trains_as_without_one(exe: fluid.Executor, tmp_path: Path) -> None:
    cpu, file = fluid.CPUPlace(), tmp_path / "data.txt"
    file.write_text("".join(f"1 {number % 5}\n" for number in range(8)))
    results: list[Any] = []
    for is_pipeline in (False, True):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [None, 1], "int64", lod_level=1)
            half = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.5))
            hidden = fluid.layers.embedding(x, [5, 3], param_attr=half)
            loss = fluid.layers.mean(fluid.layers.square(hidden + 1.0))
            inner: Any = optimizer.SGD(0.1)
            if is_pipeline:
                cuts: list[object] = [[hidden], [loss]]
                inner = optimizer.PipelineOptimizer(inner, cuts, [cpu] * 3, [1] * 3, sync_steps=10)
            inner.minimize(loss)
            assert is_pipeline == (fluid.default_main_program()._pipeline_opt is not None)
            dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
            dataset.set_use_var([x])
            dataset.set_filelist([str(file)])
            with fluid.scope_guard(fluid.Scope()):
                exe.run(fluid.default_startup_program())
                exe.train_from_dataset(fluid.default_main_program(), dataset)
                results.append(fluid.executor.global_scope().find_var("table").get_tensor().array)
    np.testing.assert_array_equal(results[0], results[1])
    assert np.all(np.not_equal(results[0], 0.5))


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: optimizer.LookaheadOptimizer(None), AssertionError, "can not be None"),
    (lambda: optimizer.LookaheadOptimizer(1, alpha=2.0), AssertionError, "alpha should be from 0"),
    (lambda: optimizer.LookaheadOptimizer(1, k=0), AssertionError, "positive integer, but it is 0"),
    (lambda: optimizer.PipelineOptimizer(None), AssertionError, "can not be None"),
    (lambda: optimizer.DGCMomentumOptimizer(0.1, 0.9, -1), AssertionError, "begin_step must >= 0"),
    (lambda: optimizer.RecomputeOptimizer(None), TypeError, "'optimizer' in RecomputeOptimizer"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_average_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
