"""Functions with branches and loops on tensors: as programs they compute what they do eagerly."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import Layer, dygraph_to_static_func, guard, to_variable
from fluid.framework import Variable

ARRAYS = [
    np.array(rows, "float32")
    for rows in ([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], [[4, 5, 6], [7, 8, 9]], [[-4, -5, -6]] * 2)
]


def number(value: int) -> Any:
    return layers.fill_constant([1], "int64", value)


def branches(x):
    if layers.mean(x) > 0:
        if layers.reduce_max(x) > 3:
            y = x * 2
            x = x + 2
        else:
            y = x * 3
        only_here = y + 1
        y = only_here - 1
    elif layers.mean(x) < -10:
        y = -x
    else:
        y = x
    return y + x


def name_of_one_branch(x):
    if layers.mean(x) > -100:
        q = x + 1
    else:
        x = x * 2
    return q + x


def python_values(x):
    k, same = 1, "scale"
    if layers.mean(x) > 0:
        k, same = 2, "scale"
    else:
        k = 3
    return getattr(layers, same)(x, 2.0) * k


def returns(x):
    mean = layers.mean(x)
    if mean > 5:
        return x * 5
    if mean > 0:
        if layers.reduce_max(x) < 1:
            return x * 7
    else:
        x = x + 1
    x = x - 1
    with fluid.name_scope("part"):
        if layers.reduce_max(x) > 4:
            return x
        x = x * 3
    return x + 1


def exits_of_match_and_try(x):
    for kind in ("a", "b", "c"):
        match kind:
            case "a":
                if layers.mean(x) > 5:
                    continue
                x = x + 1
            case "b":
                if layers.mean(x) > 1:
                    return x * 3
            case _:
                break
        try:
            if layers.mean(x) > 0.5:
                return x * 5
        finally:
            x = x - 1
    return x


def logic(x):
    positive, large = layers.mean(x) > 0, layers.reduce_max(x) > 3
    if positive and not large:
        return x
    y = x * 2 if positive or large else x * 3
    return y if -10 < layers.mean(y) < 2 else -y


def numpy_in_test(x):
    return x + 1 if layers.mean(x).numpy()[0] > 0 and x is not None else x


def counts(x):
    n = 0
    while layers.reduce_max(x) > 1:
        x = x / 2
        n += 1
    return x * n


def exits(x):
    i = number(0)
    while True:
        i = i + 1
        if i % 2 == 0:
            continue
        x = x + i
        if i > 6:
            break
        t = x * 2
    else:
        x = x * 100
    return x + t


def python_loop_with_break(x):
    for i in range(6):
        if layers.reduce_sum(x) > 30:
            break
        x = x + i
    return x


def return_from_loop(x):
    i = number(0)
    while i < 6:
        x = x + 1
        if layers.mean(x) > 3:
            return x * 2
        i = i + 1
    return x


def ranges(x):
    for i in range(1, number(8), 3):
        for j in range(i):
            x = x + j
    for k in range(number(3), 0, -1):
        x = x * k
    return x


def rows(x):
    total = layers.zeros([3], "float32")
    for row in x:
        total = total + row
    for index, row in enumerate(x, 1):
        total = total + row * index
    return total


def swapped(x):
    a, b = x, x * 3
    state = {"a": x, "unchanged": 2.0}
    i = number(0)
    while i < 3:
        a, b = b, a
        state["a"] = state["a"] + a
        i = i + 1
    return a, b, state["a"] * state["unchanged"]


def lists(x):
    out, pair = [x], [x, x]
    for i in range(number(3)):
        out.append(x + i)
        pair[0] = pair[0] + pair[1]
    if layers.mean(x) > 0:
        out.append(-x)
    last = out[-1]
    return layers.concat(out, 0), pair, last, out[len(out) - 2]


def list_of_one_item(x):
    out, nested = [], {"a": [x]}
    if layers.mean(x) > 0:
        out.append(x)
        nested["a"].append(x * 2)
    else:
        out.append(-x)
        nested["a"].append(x * 3)
    return out[0] + nested["a"][1]


def sizes(x):
    batch, width = x.shape
    y = layers.reshape(x, [batch, 1, x.shape[1]])
    for i in range(len(x)):
        y = y + float(i)
    for _ in range(int(layers.reduce_max(x))):
        y = y + 1
    return layers.reshape(y, x.shape) * width


def helper(x, times):
    if layers.mean(x) > 0:
        return x * times
    return x


def called(x):
    k = 2

    def inner(y):
        nonlocal k
        if layers.mean(y) > 0:
            k = 3
            return y * k
        return y - 1

    flip = lambda y: y if layers.mean(y) > 0 else -y  # noqa: E731 - a lambda is what is tested
    return helper(x, 2) + inner(x) + flip(x) * k


class Net(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.__times = 3

    def forward(self, x):
        self.hidden = x
        if layers.mean(x) > 0:
            self.hidden = x * self.__times
        return self.hidden


class SubNet(Net):
    def forward(self, x):
        if layers.reduce_max(x) > 5:
            x = super().forward(x)
        return x + 1


def layer_called(x):
    return fluid.dygraph.Sequential(Net(), SubNet())(x)


FUNCTIONS = [
    branches, name_of_one_branch, python_values, returns, exits_of_match_and_try, logic, numpy_in_test, counts, exits,
    python_loop_with_break, return_from_loop, ranges, rows, swapped, lists, list_of_one_item, sizes,
    called, layer_called,
]  # fmt: skip


def flat(result: Any) -> list[Any]:
    several = isinstance(result, list | tuple)
    return [x for item in result for x in flat(item)] if several else [result]


def summed(values: Sequence[Variable]) -> Any:
    return layers.sums([layers.reduce_sum(value) for value in values])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_program_computes_what_eager_mode_does(function: Callable[..., object]) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 3])
        x.stop_gradient = False
        outputs = flat(dygraph_to_static_func(function)(x))
        (gradient,) = fluid.gradients(summed(outputs), [x])
    executor = fluid.Executor()
    for array in ARRAYS:
        with guard():
            value: Any = to_variable(array)
            value.stop_gradient = False
            expected = flat(function(value))
            summed(expected).backward()
            expected = [item.numpy() for item in [*expected, value._grad_ivar()]]
        results = executor.run(main, {"x": array}, [*outputs, gradient])
        for one, two in zip(results, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5)
