"""What a repeated step costs besides its kernels, in calls; and that shortcuts notice changes."""

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fluid
from tests.support.nets import timed

MOST_CALLS = 45
"""Python functions called by a repeated step of `fit_a_line`, generated code included."""


def test_a_repeated_step_makes_few_calls() -> None:
    recorded = timed.model(fluid, "fit_a_line")
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(recorded.startup, scope=scope)
    feed, fetch = next(timed.drawn("fit_a_line", fluid=fluid)), [recorded.loss]
    for _ in range(2):
        exe.run(recorded.main, feed=feed, fetch_list=fetch, scope=scope)
    called: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        exe.run(recorded.main, feed=feed, fetch_list=fetch, scope=scope)
    finally:
        sys.setprofile(None)
    assert 5 < len(called) <= MOST_CALLS, called


def test_a_program_that_grows_is_run_as_it_is_now(exe: Any, fresh_programs: Any) -> None:
    main = fluid.default_main_program()
    with pytest.warns(UserWarning, match="has no ops"):
        exe.run()
    x = fluid.data("x", [2])
    total = fluid.layers.reduce_sum(x)
    ones = np.ones(2, np.float32)
    assert exe.run(feed={"x": ones}, fetch_list=[total])[0] == 2.0
    state = fluid.layers.create_global_var([1], 5.0, "float32", persistable=True, name="state")
    exe.run(fluid.default_startup_program())
    fluid.layers.increment(state, 1.0)
    before = fluid.global_scope().clock.written
    assert exe.run(main, feed={"x": ones}, fetch_list=[state])[0] == 6.0
    assert fluid.global_scope().clock.written == before + 1


def test_a_step_ignores_the_error_state_and_keeps_it(exe: Any, fresh_programs: Any) -> None:
    x = fluid.data("x", [2])
    y = fluid.layers.log(x)
    with np.errstate(all="raise"):
        before = np.geterr()
        for _ in range(2):
            (result,) = exe.run(feed={"x": np.zeros(2, np.float32)}, fetch_list=[y])
        assert np.geterr() == before
    assert np.isneginf(result).all()


def test_fetches_in_any_order_and_twice(exe: Any, fresh_programs: Any) -> None:
    x = fluid.data("x", [2])
    twice, thrice = fluid.layers.scale(x, 2.0), fluid.layers.scale(x, 3.0)
    feed = {"x": np.ones(2, np.float32)}
    for fetch, wanted in (
        ([twice, thrice], [2, 3]), ([thrice, twice], [3, 2]), ([twice, twice], [2, 2]),
        (twice, [2]), (twice.name, [2]), ((thrice, [twice.name]), [3, 2]), (None, []),
    ):  # fmt: skip
        actual = exe.run(feed=feed, fetch_list=fetch)
        assert [each[0] for each in actual] == wanted
        assert len({id(each) for each in actual}) == len(actual)


def test_bindings_are_exchanged_when_shapes_and_state_change(exe: Any, fresh_programs: Any) -> None:
    x = fluid.data("x", [-1, 2])
    y = fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)
    exe.run(fluid.default_startup_program())
    tensor = fluid.global_scope().find_var("w").get_tensor()
    for rows, weight in ((1, 1.0), (3, 1.0), (1, 2.0), (1, 3.0), (3, 3.0), (5, 3.0), (3, 4.0)):
        tensor.set(np.full((2, 1), weight, np.float32), fluid.CPUPlace())
        (result,) = exe.run(feed={"x": np.ones((rows, 2), np.float32)}, fetch_list=[y])
        np.testing.assert_array_equal(result, np.full((rows, 1), 2 * weight, np.float32))
