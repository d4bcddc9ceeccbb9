"""What programs see of native code: weights packed again, the target asked for."""

import os
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.codegen.native.host import detected

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def line() -> tuple[fluid.Program, fluid.Program, Any]:
    """A program of one product, whose weight it does not write."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        y = fluid.layers.fc(x, 2, param_attr="w", bias_attr=False)
    return main, startup, y


def test_a_weight_set_between_runs_is_packed_again() -> None:
    main, startup, y = line()
    exe, x = fluid.Executor(), np.arange(12, dtype="float32").reshape(4, 3)
    with fluid.scope_guard(fluid.Scope()) as _:
        exe.run(startup)
        for number in (1.0, 2.0, 3.0):
            weight = np.full((3, 2), number, "float32")
            fluid.global_scope().find_var("w").get_tensor().set(weight, fluid.CPUPlace())
            for _ in range(2):
                (result,) = exe.run(main, feed={"x": x}, fetch_list=[y])
                np.testing.assert_allclose(result, x @ weight, rtol=1e-6)


def test_a_program_is_compiled_for_the_target_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUID_TARGET", "other")
    with pytest.raises(ValueError, match="FLUID_TARGET is 'other', expected native or numpy"):
        fluid.Executor(fluid.CPUPlace())
    assert os.environ["FLUID_TARGET"] == "other"


@pytest.mark.parametrize("sizes", [(5, 7), (2, 9), (1, 1)])
def test_sizes_computed_from_shapes_are_native_for_every_size(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is resized to that of another, and rows are split by their number."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        small, large = fluid.data("s", [None, 3, 2, 3]), fluid.data("l", [None, 3, None, None])
        shape = fluid.layers.shape(large)
        resized = fluid.layers.resize_bilinear(small, [shape[2], shape[3]])
        added = fluid.layers.elementwise_add(resized, large)
        flat = fluid.layers.transpose(added, [0, 2, 3, 1])
        rows = fluid.layers.reshape(flat, [shape[0], shape[2] * shape[3], 3])
    random = np.random.RandomState(3)
    feed = {"s": random.rand(2, 3, 2, 3), "l": random.rand(2, 3, *sizes)}
    feed = {name: array.astype("float32") for name, array in feed.items()}
    results = {}
    for target in ("numpy", "native"):
        monkeypatch.setenv("FLUID_TARGET", target)
        (results[target],) = fluid.Executor().run(main, feed=feed, fetch_list=[rows])
    np.testing.assert_allclose(results["native"], results["numpy"], rtol=1e-5, atol=1e-6)
    module = compiler.compile(main, feed={"s": ("N", 3, 2, 3), "l": ("N", 3, "H", "W")},
                              fetch=[rows.name], target="native")  # fmt: skip
    assert "NumPy:" not in module.source


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_a_loop_overwrites_a_value_whose_sizes_were_computed(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, startup = fluid.Program(), fluid.Program()
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, None])
        shape = layers.shape(x)
        flat = layers.reshape(x, [shape[0] * shape[1]])
        doubled = layers.scale(flat, 2.0)
        step, limit = (layers.fill_constant([1], "int64", each) for each in (0, 3))
        going = layers.less_than(step, limit)
        with layers.While(going).block():
            layers.assign(layers.scale(doubled, 2.0), doubled)
            layers.increment(step, 1, in_place=True)
            layers.less_than(step, limit, cond=going)
    monkeypatch.setenv("FLUID_TARGET", target)
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    (result,) = fluid.Executor().run(main, feed=feed, fetch_list=[doubled])
    np.testing.assert_array_equal(result, np.arange(6) * 16)


def test_rows_may_be_as_many_as_those_of_another_feed_at_run_time() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 2])
        rows = fluid.layers.reshape(x, [fluid.layers.shape(y)[0], 3])
    module = compiler.compile(main, feed={"x": ("N", 3), "y": ("M", 2)}, fetch=[rows.name],
                              target="native")  # fmt: skip
    x_, y_ = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    (result,) = runtime.load(module)({"x": x_, "y": y_})
    np.testing.assert_array_equal(result, x_)


def dropped(seed: int | None) -> tuple[fluid.Program, list[Any]]:
    """A dropout of ones [None, 1001] with probability 0.3; fetches it and its gradient."""
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [None, 1001])
        x.stop_gradient = False
        y = fluid.layers.dropout(x, 0.3, seed=seed, dropout_implementation="upscale_in_train")
        return main, [y, *fluid.gradients(fluid.layers.reduce_sum(y), x)]


def test_a_dropout_and_its_gradient_draw_equal_numbers_which_are_new_in_each_step() -> None:
    (main, fetches), exe = dropped(None), fluid.Executor()
    ones = np.ones((37, 1001), "float32")
    first, second = (exe.run(main, feed={"x": ones}, fetch_list=fetches) for _ in range(2))
    for y, dx in (first, second):
        np.testing.assert_array_equal(y, dx)
        np.testing.assert_allclose(np.unique(y), [0, 1 / 0.7], rtol=1e-6)
        assert abs((y == 0).mean() - 0.3) < 0.015
    assert 0.38 < (first[0] != second[0]).mean() < 0.46


def test_a_dropout_with_a_seed_drops_the_same_elements_as_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[Any] = []
    for target in ("native", "numpy"):
        monkeypatch.setenv("FLUID_TARGET", target)
        main, fetches = dropped(7)
        feed = {"x": np.ones((5, 1001), "float32")}
        results.append(fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=fetches))
    np.testing.assert_array_equal(*results)
