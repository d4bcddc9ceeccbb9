"""State that has another type than declared; types and numbers are those of release 1.8.5."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from runtime.errors import StateMismatch

pytestmark = pytest.mark.usefixtures("fresh_programs")


def variable() -> fluid.Variable:
    return layers.create_global_var([1], 0.5, "float32", persistable=True, name="state")


def set_state(name: str, value: Any) -> None:
    fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())


def fetched(exe: Any, *fetch: fluid.Variable, **feed: Any) -> list[Any]:
    return [(str(v.dtype), v.tolist()) for v in exe.run(feed=feed, fetch_list=list(fetch))]


@pytest.mark.parametrize("has_default", [True, False])
def test_a_branch_changes_the_dtype_of_state(exe: Any, has_default: bool) -> None:
    state, step = variable(), fluid.data("step", [1], "int64")
    before = state * 2
    with layers.Switch() as switch:
        with switch.case(step < 3):
            layers.assign(step + 1, state)
        if has_default:
            with switch.default():
                layers.assign(layers.fill_constant([1], "float32", 9.5), state)
    after = state * 2
    exe.run(fluid.default_startup_program())
    one, five = np.array([1]), np.array([5])
    assert fetched(exe, before, after, step=one) == [("float32", [1.0]), ("int64", [4])]
    kept = ("float32", [19.0]) if has_default else ("int64", [4])
    assert fetched(exe, before, after, step=five) == [("int64", [4]), kept]
    assert fetched(exe, before, after, step=five) == [kept, kept]


def test_an_op_changes_the_type_of_state_that_was_read(exe: Any) -> None:
    state = variable()
    before = state * 2
    layers.assign(layers.fill_constant([1], "float32", 1.5), state)
    between = state * 2
    layers.assign(layers.fill_constant([2], "int64", 3), state)
    after = state * 2
    exe.run(fluid.default_startup_program())
    later = [("float32", [3.0]), ("int64", [6, 6])]
    assert fetched(exe, before, between, after) == [("float32", [1.0]), *later]
    assert fetched(exe, before, between, after) == [("int64", [6, 6]), *later]


def test_average_with_an_integer_counter(exe: Any) -> None:
    x = fluid.data("x", [None, 4])
    weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.5))
    loss = layers.mean(layers.square(layers.fc(x, 1, param_attr=weight)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    steps = layers.autoincreased_step_counter()
    average = fluid.optimizer.ExponentialMovingAverage(0.999, thres_steps=steps)
    average.update()
    exe.run(fluid.default_startup_program())
    for _ in range(4):
        exe.run(feed={"x": np.ones((2, 4), "float32")})
    with average.apply(exe):
        value = np.array(fluid.global_scope().var("w").get_tensor())
        np.testing.assert_allclose(value, 0.1000006, rtol=1e-6)


def test_ops_compute_with_state_as_the_scope_has_it(exe: Any) -> None:
    block = fluid.default_main_program().global_block()
    table = block.create_var(name="table", shape=[2, 1], dtype="float32", persistable=True)
    rows = block.create_var(name="rows", shape=[2, 1], dtype="int64", persistable=True)
    taken = layers.gather(table, rows)
    set_state("rows", np.array([[1], [3]], "int32"))
    for count in (4, 5):
        set_state("table", np.arange(count, dtype="float32").reshape(count, 1))
        assert fetched(exe, taken) == [("float32", [[1.0], [3.0]])]
    set_state("table", np.ones(4, "float64"))
    set_state("rows", np.array([[1], [3]]))
    assert fetched(exe, taken * 2.0) == [("float64", [2.0, 2.0])]


def test_state_that_ops_cannot_use_is_reported(exe: Any) -> None:
    y = layers.fc(fluid.data("x", [None, 3]), 2, param_attr=fluid.ParamAttr("w"))
    exe.run(fluid.default_startup_program())
    set_state("w", np.ones((4, 2), "float32"))
    with pytest.raises(StateMismatch, match=r"'w' must be float32 of shape \(3, 2\), but it"):
        exe.run(feed={"x": np.ones((1, 3), "float32")}, fetch_list=[y])


def test_state_is_fed_with_another_dtype(exe: Any) -> None:
    state = variable()
    doubled = state * 2
    exe.run(fluid.default_startup_program())
    assert fetched(exe, doubled, state=np.array([3])) == [("int64", [6])]
    assert fetched(exe, doubled) == [("int64", [6])]
