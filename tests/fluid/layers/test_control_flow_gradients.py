"""Gradients through loops, branches and arrays, compared with finite differences.

1.8.5 computes wrong gradients where a loop overwrites a variable that a gradient reads, where an
array element is read several times or written again, and where a branch is linear.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

START, WEIGHT, STEPS = 0.7, 0.9, 3
ROWS = np.array([[0.2], [1.0], [3.0]], np.float32)
Body = Callable[[Any, Any, Any, Any], Any]
BODIES: list[Body] = []


def body(function: Body) -> Body:
    """Have a function of (h, w, i, n) checked: a value, a parameter, a counter and its end."""
    BODIES.append(function)
    return function


def loop(i: Any, n: Any, step: Callable[[], None]) -> None:
    """Run a step as long as i < n; the step counts."""
    cond = layers.less_than(i, n)
    with layers.While(cond).block():
        step()
        layers.less_than(i, n, cond=cond)


def appending(array: Any, i: Any, after: Callable[[Any], Any]) -> Callable[[], None]:
    """A step that writes what it makes of the array's item i behind it."""

    def step() -> None:
        value = after(layers.array_read(array, i))
        layers.increment(i)
        layers.array_write(value, i, array)

    return step


@body
def loop_variable_is_read_by_its_gradient(h, w, i, n):
    step = lambda i, h: [layers.increment(i), layers.tanh(h * w)]  # noqa: E731
    return layers.while_loop(lambda i, h: i < n, step, [i, h])[1]


@body
def linear_loop(h, w, i, n):
    step = lambda i, h: [i + 1, layers.scale(h, 0.5)]  # noqa: E731
    return layers.while_loop(lambda i, h: i < n, step, [i, h])[1] * w


@body
def loop_variables_that_feed_each_other(h, w, i, n):
    step = lambda i, a, b: [i + 1, a * b, b * w]  # noqa: E731
    return layers.while_loop(lambda i, a, b: i < n, step, [i, h, layers.scale(h, 2.0)])[1]


@body
def loop_that_does_not_run(h, w, i, n):
    step = lambda i, h: [i + 1, layers.tanh(h * w)]  # noqa: E731
    return layers.while_loop(lambda i, h: i > n, step, [i, h])[1]


@body
def variable_written_over_without_being_read(h, w, i, n):
    result = layers.scale(h, 3.0)

    def step():
        layers.increment(i)
        layers.assign(layers.cast(i, "float32") * w * h, result)

    loop(i, n, step)
    return layers.tanh(result)


@body
def array_in_a_loop(h, w, i, n):
    array = layers.array_write(h, i)
    loop(i, n, appending(array, i, lambda before: before * w + h))
    return layers.array_read(array, n)


@body
def item_read_in_every_step(h, w, i, n):
    array, first = layers.array_write(h, i), layers.fill_constant([1], "int64", 0)
    sums = layers.array_write(layers.scale(h, 1.0), i)

    def after(before):
        same = layers.array_read(array, first)
        return before * w + same * same

    loop(i, n, appending(sums, i, after))
    return layers.array_read(sums, n)


@body
def items_read_behind_the_loop_too(h, w, i, n):
    array = layers.array_write(layers.scale(h, 1.0), i)
    loop(i, n, appending(array, i, lambda before: layers.tanh(before * w)))
    return layers.tensor_array_to_tensor(array, axis=0)[0]


@body
def items_read_before_the_loop_too(h, w, i, n):
    array, first = layers.array_write(layers.tanh(h), i), layers.fill_constant([1], "int64", 0)
    before = layers.array_read(array, first)
    loop(i, n, appending(array, i, lambda item: layers.tanh(item * w)))
    return layers.array_read(array, n) * before


@body
def item_written_again(h, w, i, n):
    first = layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.scale(h, 1.0), first)

    def step():
        value = layers.tanh(layers.array_read(array, first) * w)
        layers.increment(i)
        layers.array_write(value, first, array)

    loop(i, n, step)
    return layers.array_read(array, first)


@body
def item_only_written_again(h, w, i, n):
    first = layers.fill_constant([1], "int64", 0)
    array = layers.create_array("float32")

    def step():
        layers.increment(i)
        layers.array_write(layers.cast(i, "float32") * w * h, first, array)

    loop(i, n, step)
    return layers.array_read(array, first)


@body
def two_items_read_in_a_step(h, w, i, n):
    array = layers.array_write(layers.scale(h, 1.0), i)
    layers.increment(i)
    layers.array_write(layers.tanh(h), i, array)

    def after(before):
        one = layers.fill_constant([1], "int64", 1)
        return before * (layers.array_read(array, layers.elementwise_sub(i, one)) * w)

    loop(i, n, appending(array, i, after))
    return layers.array_read(array, n)


@body
def counter_of_an_array_without_a_loop(h, w, i, n):
    array = layers.array_write(h * w, i)
    layers.increment(i)
    layers.array_write(layers.tanh(h), i, array)
    layers.increment(i)
    layers.array_write(h * h, i, array)
    return layers.square(layers.tensor_array_to_tensor(array, axis=0)[0])


@body
def items_read_and_written_in_turn(h, w, i, n):
    array = layers.array_write(h, i)
    first = layers.array_read(array, i)
    layers.array_write(layers.tanh(first * w), i, array)
    return layers.array_read(array, i) * first


@body
def branch_taken_and_not(h, w, i, n):
    taken = layers.cond(n > i, lambda: h * w, lambda: layers.tanh(h))
    other = layers.cond(i > n, lambda: h * w, lambda: layers.tanh(h))
    return taken * other


@body
def only_one_of_two_results_read(h, w, i, n):
    first, _ = layers.cond(n > i, lambda: (h * w, h), lambda: (layers.scale(h, 2.0), w))
    return first


@body
def cases_that_write_over_a_value(h, w, i, n):
    result = layers.tanh(h)
    with layers.Switch() as switch:
        with switch.case(i > n):
            layers.assign(h * w, result)
        with switch.case(i > n):
            layers.assign(w, result)
    return result


@body
def loop_in_a_branch_in_a_loop(h, w, i, n):
    array = layers.array_write(h, i)

    def inner(value):
        j, m = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        step = lambda j, v: [layers.increment(j), layers.tanh(v * w)]  # noqa: E731
        return layers.while_loop(lambda j, v: j < m, step, [j, value])[1]

    def after(before):
        even = layers.equal(i, layers.fill_constant([1], "int64", 1))
        kept = layers.scale(before, 1.0)
        return layers.cond(even, lambda: inner(kept), lambda: before * w)

    loop(i, n, appending(array, i, after))
    return layers.array_read(array, n)


@body
def steps_of_a_recurrent_net(h, w, i, n):
    x = layers.expand(layers.reshape(h, [1, 1, 1]), [4, 2, 1])
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 1], batch_ref=x, init_value=0.5)
        after = layers.tanh(before * w + step * h)
        rnn.update_memory(before, after)
        rnn.output(after, layers.relu(after))
    first, _ = rnn()
    return first


def recurrent(h: Any, step: Callable[[Any, Any], Any]) -> Any:
    """What four steps of a net over copies of h leave: `step` makes a state of (state, input)."""
    x = layers.expand(layers.reshape(h, [1, 1, 1]), [4, 2, 1])
    rnn = layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 1], batch_ref=x, init_value=0.5)
        after = step(before, now)
        rnn.update_memory(before, after)
        rnn.output(after)
    return rnn()


@body
def branch_in_a_recurrent_step(h, w, i, n):
    def step(before, now):
        large = layers.reduce_mean(before) > 0.95
        return layers.cond(large, lambda: layers.tanh(before * w), lambda: before + now * w)

    return recurrent(h, step)


@body
def loop_in_a_recurrent_step(h, w, i, n):
    def step(before, now):
        j, m = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        move = lambda j, v: [j + 1, layers.tanh(v * w + now)]  # noqa: E731
        return layers.while_loop(lambda j, v: j < m, move, [j, before * 1.0])[1]

    return recurrent(h, step)


@body
def recurrent_net_in_a_loop(h, w, i, n):
    def step(i, v):
        last = recurrent(v, lambda before, now: layers.tanh(before * w + now))
        return [i + 1, layers.reduce_mean(last) * v]

    return layers.while_loop(lambda i, v: i < n, step, [i, h])[1]


@body
def recurrent_net_in_a_branch(h, w, i, n):
    net = lambda: recurrent(h, lambda before, now: layers.tanh(before * w + now))  # noqa: E731
    return layers.cond(i < n, lambda: layers.reduce_mean(net()), lambda: layers.reduce_sum(h * w))


@body
def branches_in_branches_in_a_loop(h, w, i, n):
    one = layers.fill_constant([1], "int64", 1)

    def step(i, v):
        small = lambda: layers.cond(v > 0.5, lambda: v * w, lambda: layers.exp(v))  # noqa: E731
        return [i + 1, layers.cond(i < one, small, lambda: layers.tanh(v) * w)]

    return layers.while_loop(lambda i, v: i < n, step, [i, h])[1]


@body
def rows_by_condition_in_a_loop(h, w, i, n):
    x = layers.expand(layers.reshape(h, [1, 1]), [3, 1]) * layers.assign(ROWS)

    def step(i, v):
        choice = layers.IfElse(v > 0.5)
        with choice.true_block():
            choice.output(layers.tanh(choice.input(v) * w))
        with choice.false_block():
            choice.output(choice.input(v) * w + 1.0)
        return [i + 1, choice()[0]]

    return layers.while_loop(lambda i, v: i < n, step, [i, x])[1]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_gradients_are_finite_differences(body: Body, exe: fluid.Executor) -> None:
    loss, program, result = build(body)
    with fluid.scope_guard(fluid.Scope()):
        at = lambda x, w: run(exe, program, x, w, [loss])[0]  # noqa: E731
        got = run(exe, program, START, WEIGHT, result)
        step = 1e-3
        slopes = [
            (at(START + step, WEIGHT) - at(START - step, WEIGHT)) / (2 * step),
            (at(START, WEIGHT + step) - at(START, WEIGHT - step)) / (2 * step),
        ]
    np.testing.assert_allclose(got, slopes, rtol=2e-3, atol=2e-3)


def build(body: Body) -> tuple[Any, fluid.Program, list[Any]]:
    """The loss of a body, its program, and the gradients of the value and the parameter."""
    program = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(program, fluid.Program()):
        x, w = (layers.data(name, [1], append_batch_size=False) for name in ("x", "w"))
        x.stop_gradient = w.stop_gradient = False
        i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
        loss = layers.mean(body(layers.scale(x, 1.0), layers.scale(w, 1.0), i, n))
        result = fluid.gradients([loss], [x, w])
    pairs = zip([x, w], result, strict=True)
    return loss, program, [x.name if pair is None else pair for x, pair in pairs]


def run(exe: fluid.Executor, program: fluid.Program, x: float, w: float, fetch: Any) -> list[float]:
    feed = {"x": np.array([x], np.float32), "w": np.array([w], np.float32)}
    return [float(value[0]) for value in exe.run(program, feed=feed, fetch_list=fetch)]
