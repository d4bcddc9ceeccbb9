"""Programs of functions with control flow: saved, shown, printed, and what is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import (
    Layer,
    Linear,
    ProgramTranslator,
    declarative,
    dygraph_to_static_func,
    guard,
    to_variable,
)
from fluid.dygraph.dygraph_to_static import convert_to_static
from fluid.dygraph.dygraph_to_static.convert_call_func import is_builtin, is_paddle_func

ONES = np.ones([2, 3], "float32")


class Net(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(3, 3)

    @declarative
    def forward(self, x):
        if layers.mean(x) > 0:
            return self.linear(x)
        return x * 2


def test_branch_of_method_is_saved(tmp_path: Path) -> None:
    with guard():
        net = Net()
        expected = [net(to_variable(sign * ONES)).numpy() for sign in (1, -1)]
        ProgramTranslator().save_inference_model(str(tmp_path))
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        for sign, value in zip((1, -1), expected, strict=True):
            rows = np.concatenate([ONES, ONES])
            (result,) = executor.run(program, {feeds[0]: sign * rows}, fetches)
            np.testing.assert_allclose(result[:2], value, rtol=1e-5)


def chosen(x):
    return x if layers.mean(x) > 0 else -x


def test_translator_can_be_disabled() -> None:
    translator = ProgramTranslator()
    translator.enable(False)
    try:
        assert translator.get_func(chosen) is chosen
        with guard():
            assert (
                translator.get_program(chosen, to_variable(-ONES)).numpy().tolist()
                == [[1.0] * 3] * 2
            )
    finally:
        translator.enable(True)
    main, _, feeds, outputs = translator.get_program(chosen, ONES)
    (result,) = fluid.Executor().run(main, {feeds[0].name: -ONES}, outputs)
    assert result.tolist() == ONES.tolist()
    assert "_jst.choose(" in translator.get_code(dygraph_to_static_func(chosen))


def test_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    while x:\n        x = x - 1\n    return x", namespace)
    x = layers.fill_constant([1], "float32", 3.0)
    with pytest.raises(OSError, match=r"the source of f .* is not available"):
        dygraph_to_static_func(namespace["f"])(x)


def test_prints_and_assertions_run_in_each_run(capfd: pytest.CaptureFixture[str]) -> None:
    @dygraph_to_static_func
    def printed(x):
        print("mean of", layers.mean(x), 7)
        assert layers.mean(x) < 5, "large"
        return x

    main = fluid.Program()
    with fluid.program_guard(main):
        out = printed(fluid.data("x", [None, 3]))
    assert capfd.readouterr().out.strip() == "7"
    fluid.Executor().run(main, {"x": ONES}, [out])
    shown = "".join(capfd.readouterr())
    assert "mean of" in shown
    with pytest.raises(Exception, match=r"(?i)assert"):
        fluid.Executor().run(main, {"x": ONES * 9}, [out])


def other_dtype(x):
    return layers.cast(x, "int64") if layers.mean(x) > 0 else x


def other_value(x):
    kind = "b"
    if layers.mean(x) > 0:
        kind = "a"
    return x, kind


def none_before(x):
    last = None
    for i in range(layers.fill_constant([1], "int64", 3)):
        if last is None:
            last = x
        last = last + i
    return last


def other_shape(x):
    while layers.reduce_sum(x) < 9:
        x = layers.unsqueeze(x, [0])
    return x


def number_of_unknown_size(x):
    total = 0
    while layers.reduce_sum(x) < 9:
        total = total + x
    return total


def unpacked(x):
    first, second = x
    return first + second


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (other_dtype, "'the result' is i64 in one branch of an `if` on a tensor and f32"),
        (other_value, "'kind' is 'a' in one branch of an `if` on a tensor, and 'b' in the other"),
        (none_before, "'last' is None before a loop on a tensor and a tensor f32"),
        (other_shape, r"'x' has shape \[-1, 3\] before a loop on a tensor and \[1, -1, 3\]"),
        (number_of_unknown_size, "begin with a tensor of that shape, such as layers.zeros_like"),
        (unpacked, "'x' has no known number of items"),
    ],
)
def test_what_no_program_can_do_is_refused(function: Callable[..., object], message: str) -> None:
    program = fluid.Program()
    with fluid.program_guard(program), pytest.raises(TypeError, match=message) as caught:
        dygraph_to_static_func(function)(fluid.data("x", [None, 3]))
    assert function is unpacked or re.match(
        r"\S*test_program_translator.py:\d+: ", str(caught.value)
    )


def test_errors_show_the_lines_of_the_function() -> None:
    @dygraph_to_static_func
    def wrong(x):
        if layers.mean(x) > 0:
            x = layers.reshape(x, [7, 5])
        return x

    with fluid.program_guard(fluid.Program()), pytest.raises(Exception) as caught:
        wrong(fluid.data("x", [2, 3]))
    lines = [entry.lineno + 1 for entry in caught.traceback if entry.path == Path(__file__)]
    assert wrong.__wrapped__.__code__.co_firstlineno + 3 in lines


def signed(x):
    if layers.reduce_sum(x) > 0:
        return x
    return -x


def test_conversion_is_made_once() -> None:
    from_static = convert_to_static(signed)
    assert convert_to_static(signed) is from_static
    with fluid.program_guard(fluid.Program()):
        out = from_static(layers.fill_constant([2], "float32", -3.0))
        assert fluid.Executor().run(fluid.default_main_program(), fetch_list=[out])[0].tolist() == [
            3.0, 3.0,
        ]  # fmt: skip
    assert [is_builtin(len), is_builtin(signed)] == [True, False]
    assert [is_paddle_func(layers.fc), is_paddle_func(signed)] == [True, False]
