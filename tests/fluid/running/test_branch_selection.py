"""Branches whose results differ in rank or element type; numbers are those of release 1.8.5."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError
from fluid import layers

pytestmark = pytest.mark.usefixtures("fresh_programs")
X = np.arange(6, dtype="float32").reshape(2, 3) + np.float32(0.5)


def number(value: float, dtype: str = "float32") -> Any:
    return np.array([value], dtype)


def inputs() -> tuple[fluid.Variable, fluid.Variable]:
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    return x, fluid.data("p", [1])


def test_ranks_and_gradients(exe: Any) -> None:
    x, p = inputs()
    out = layers.cond(p > 0.0, lambda: x * x, lambda: layers.reduce_sum(x, 1))
    assert out.shape == (-1,)
    (slope,) = fluid.gradients(layers.mean(out), x)
    for _ in range(2):
        squares, by_squares = exe.run(feed={"x": X, "p": number(1)}, fetch_list=[out, slope])
        sums, by_sums = exe.run(feed={"x": X, "p": number(-1)}, fetch_list=[out, slope])
        np.testing.assert_allclose(squares, X * X)
        np.testing.assert_allclose(by_squares, X / 3, rtol=1e-6)
        assert sums.tolist() == [4.5, 13.5]
        assert (by_sums == 0.5).all()


def test_branch_results_keep_their_dtypes(exe: Any) -> None:
    x, p = inputs()
    out = layers.cond(p > 0.0, lambda: x, lambda: layers.cast(x, "int64"))
    (floats,) = exe.run(feed={"x": X, "p": number(1)}, fetch_list=[out])
    (whole,) = exe.run(feed={"x": X, "p": number(-1)}, fetch_list=[out])
    assert (floats.dtype, floats[0, 1]) == (np.float32, 1.5)
    assert (whole.dtype, whole[0, 1]) == (np.int64, 1)


def test_switches(exe: Any) -> None:
    x, way = fluid.data("x", [None, 3]), fluid.data("way", [1], "int32")
    out = layers.switch_case(
        way,
        {1: lambda: x, 2: lambda: layers.reduce_sum(x)},
        default=lambda: layers.cast(layers.reduce_sum(x, 1), "int64"),
    )
    feeds = [{"x": X, "way": number(n, "int32")} for n in (1, 2, 3)]
    results = [exe.run(feed=feed, fetch_list=[out])[0] for feed in feeds]
    assert [value.shape for value in results] == [(2, 3), (1,), (2,)]
    assert results[1] == 18.0
    assert (results[2].dtype, results[2].tolist()) == (np.int64, [4, 13])


def test_choices_within_choices(exe: Any) -> None:
    """The choice around one that decides a rank need not decide any."""
    x, p = inputs()
    q = fluid.data("q", [1])

    def inner() -> fluid.Variable:
        return layers.cond(q > 0.0, lambda: x * x, lambda: layers.reduce_sum(x * 3.0, 1))

    out = layers.cond(p > 0.0, lambda: layers.reduce_sum(inner()), lambda: layers.reduce_mean(x))
    (slope,) = fluid.gradients(layers.reduce_sum(out * out), x)
    fetch = [out, slope]
    for p_is, q_is, wanted, first in ((1, 1, 71.5, 143), (1, -1, 54, 324), (-1, 1, 3, 1)):
        feed = {"x": X, "p": number(p_is), "q": number(q_is)}
        value, by_x = exe.run(feed=feed, fetch_list=fetch)
        np.testing.assert_allclose([value[0], by_x[0, 0]], [wanted, first], rtol=1e-6)


def test_several_results(exe: Any) -> None:
    x, p = inputs()
    first, (second, _) = layers.cond(
        p > 0.0,
        lambda: (x, (layers.reduce_sum(x, 1), x + 1.0)),
        lambda: (layers.reduce_sum(x), (x, x * 2.0)),
    )
    shapes = []
    for sign in (1, -1):
        values = exe.run(feed={"x": X, "p": number(sign)}, fetch_list=[first, second])
        shapes.append([value.shape for value in values])
    assert shapes == [[(2, 3), (2,)], [(1,), (2, 3)]]


def test_state_that_a_condition_reads_is_incremented(exe: Any) -> None:
    x = fluid.data("x", [None, 3])
    step = layers.autoincreased_step_counter()
    early = layers.less_than(step, layers.fill_constant([1], "int64", 2))
    out = layers.cond(early, lambda: x, lambda: layers.reduce_sum(x, 1))
    exe.run(fluid.default_startup_program())
    runs = [exe.run(feed={"x": X}, fetch_list=[out, step]) for _ in range(3)]
    assert [(value.ndim, int(number)) for value, number in runs] == [(2, 1), (1, 2), (1, 3)]


def test_in_a_loop_it_is_an_error(exe: Any) -> None:
    x = fluid.data("x", [None, 3])
    zero, one, end = (layers.fill_constant([1], "int64", n) for n in (0, 1, 3))

    def body(i: fluid.Variable, total: fluid.Variable) -> list[fluid.Variable]:
        either = layers.cond(i < one, lambda: x, lambda: layers.reduce_sum(x, 1))
        return [i + 1, total + layers.reduce_sum(either)]

    start = layers.fill_constant([1], "float32", 0.0)
    _, total = layers.while_loop(lambda i, _: i < end, body, [zero, start])
    with pytest.raises(ShapeError, match=r"branches have the shapes .* in a loop"):
        exe.run(feed={"x": X}, fetch_list=[total])


def test_branches_are_explained(exe: Any) -> None:
    x, p = inputs()
    out = layers.cond(p > 0.0, lambda: layers.exp(x), lambda: layers.reduce_sum(x, 1))
    pages = []
    for sign in (1, -1):
        exe.run(feed={"x": X, "p": number(sign)}, fetch_list=[out])
        pages.append(exe.explain().html())
    assert ["layers.exp" in page for page in pages] == [True, True]  # the lines of the script
    assert pages[0] != pages[1]


def test_on_several_devices_it_is_an_error(exe: Any) -> None:
    x, p = fluid.data("x", [None, 3]), fluid.data("p", [None, 1])
    positive = layers.reduce_sum(p) > 0.0
    out = layers.cond(positive, lambda: x * 1.0, lambda: layers.reduce_sum(x, 1))
    main = fluid.default_main_program()
    both = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    with pytest.raises(ShapeError, match=r"select_input: .* on several devices") as error:
        exe.run(both, feed={"x": X, "p": np.ones((2, 1), "float32")}, fetch_list=[out])
    assert "test_branch_selection.py" in str(error.value)


def test_programs_with_branches_are_collected(exe: Any) -> None:
    main = fluid.Program()
    with fluid.program_guard(main):
        x, p = inputs()
        out = layers.cond(p > 0.0, lambda x=x: x, lambda x=x: layers.reduce_sum(x, 1))
    exe.run(main, {"x": X, "p": number(1)}, [out.name])
    program = weakref.ref(main)
    del main, x, p, out
    gc.collect()
    assert program() is None
