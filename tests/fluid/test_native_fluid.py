"""What programs see of native code: weights packed again, the target asked for."""

import os
from typing import Any

import numpy as np
import pytest

import fluid
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
                (found,) = exe.run(main, feed={"x": x}, fetch_list=[y])
                np.testing.assert_allclose(found, x @ weight, rtol=1e-6)


def test_a_program_is_compiled_for_the_target_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLUID_TARGET", "other")
    with pytest.raises(ValueError, match="the target is 'other', expected 'native' or 'numpy'"):
        fluid.Executor(fluid.CPUPlace())
    assert os.environ["FLUID_TARGET"] == "other"


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
    found: list[Any] = []
    for target in ("native", "numpy"):
        monkeypatch.setenv("FLUID_TARGET", target)
        main, fetches = dropped(7)
        feed = {"x": np.ones((5, 1001), "float32")}
        found.append(fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=fetches))
    np.testing.assert_array_equal(*found)
