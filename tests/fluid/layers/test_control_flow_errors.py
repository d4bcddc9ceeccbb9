"""What layers of control flow refuse, and that a refused block leaves nothing behind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid import layers
from fluid.framework import Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def x(*sizes: int, dtype: str = "float32", name: str = "", level: int = 0) -> Variable:
    """Declare rows: [rows, *sizes]."""
    name = name or fluid.unique_name.generate("x")
    return fluid.data(name, [None, *sizes], dtype, lod_level=level)


def true() -> Variable:
    return layers.fill_constant([1], "bool", True)


def number(value: int = 0, dtype: str = "int64") -> Variable:
    return layers.fill_constant([1], dtype, value)


def refused(kind: type[Exception], match: str, build: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=match):
        build()
    program = default_main_program()
    assert (program.current_block_idx, len(program.blocks)) == (0, 1)


# ---- loops


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: layers.While(True), "condition should be a variable, but received bool"),
        (lambda: layers.While(number()), "boolean variable, but 'fill_constant_0.tmp_0' is INT64"),
        (lambda: layers.While(layers.fill_constant([2], "bool", True)), r"has the shape \[2\]"),
        (lambda: layers.while_loop(true(), lambda i: i, [number()]), "cond.? in while_loop"),
        (lambda: layers.while_loop(lambda i: i < i, None, [number()]), "body.? in while_loop"),
        (
            lambda: layers.while_loop(lambda i: i < i, lambda i: i, number()),
            "must be list or tuple, but",
        ),
        (lambda: layers.while_loop(lambda i: i, lambda i: i, [number()]), "return a boolean"),
    ],
)
def test_loop_errors(build: Callable[[], Any], match: str) -> None:
    refused(TypeError, match, build)


def test_a_loop_without_variables() -> None:
    refused(ValueError, "not be empty", lambda: layers.while_loop(true, lambda: None, []))


@pytest.mark.parametrize(
    "body",
    [lambda i, j: i, lambda i, j: [i, [j]], lambda i, j: [i, j, j]],
    ids=["one", "nested", "three"],
)
def test_a_body_of_another_structure(body: Callable[..., Any]) -> None:
    loop = lambda: layers.while_loop(lambda i, j: i < j, body, [number(), number(3)])  # noqa: E731
    refused(ValueError, "return the same arity", loop)


def test_an_error_in_a_block_takes_it_out_again() -> None:
    def build() -> None:
        with layers.While(true()).block():
            layers.array_read(layers.create_array("float32"), number(dtype="int32"))

    refused(TypeError, "int64", build)


# ---- branches


@pytest.mark.parametrize(
    ("kind", "match", "build"),
    [
        (TypeError, "pred", lambda: layers.cond(number(), lambda: None, lambda: None)),
        (TypeError, "name", lambda: layers.cond(true(), lambda: None, lambda: None, name=3)),
        (TypeError, "true_fn.? in cond must be", lambda: layers.cond(true(), 3, None)),
        (ValueError, "false_fn returns None", lambda: layers.cond(true(), number)),
        (ValueError, "true_fn returns None", lambda: layers.cond(true(), None, number)),
        (TypeError, "pred_fn_pairs", lambda: layers.case(true())),
        (TypeError, "must be tuples, not list", lambda: layers.case([[true(), number]])),
        (TypeError, "have 2 items, not 1", lambda: layers.case([(true(),)])),
        (TypeError, "must be a Variable, not int", lambda: layers.case([(1, number)])),
        (TypeError, "must be callable", lambda: layers.case([(true(), 1)])),
        (TypeError, "default", lambda: layers.case([(true(), number)], default=1)),
        (TypeError, "branch_index", lambda: layers.switch_case(true(), [number])),
        (TypeError, "branch_fns", lambda: layers.switch_case(number(), number)),
        (TypeError, "must be an int", lambda: layers.switch_case(number(), [("a", number)])),
        (TypeError, "not \\(index", lambda: layers.switch_case(number(), [(1, 2, 3)])),
        (TypeError, "key 1 in", lambda: layers.switch_case(number(), {1: 2})),
        (TypeError, "default", lambda: layers.switch_case(number(), [number], default=1)),
        (
            ValueError,
            "1 appears twice",
            lambda: layers.switch_case(number(), [(1, number), (1, number)]),
        ),
    ],
)
def test_branch_errors(kind: type[Exception], match: str, build: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=match):
        build()
    assert default_main_program().current_block_idx == 0


def test_branches_of_different_structures() -> None:
    with pytest.raises(ValueError, match="Incompatible return values") as error:
        layers.cond(true(), lambda: [number(), {"a": number()}], lambda: [number()])
    assert "['_generated_var_0', {'a': '_generated_var_1'}] and ['" in str(error.value)


def test_a_function_of_cond_returns_variables() -> None:
    refused(TypeError, "result of a function", lambda: layers.cond(true(), lambda: 3))


def test_switch_out_of_order() -> None:
    switch = layers.Switch()
    with pytest.raises(ValueError, match="called inside with"):
        switch.case(true())
    with switch, pytest.raises(ValueError, match="at least one condition"):
        switch.default()
    with switch, pytest.raises(TypeError, match="condition"):
        switch.case(number())


def test_if_else_out_of_order() -> None:
    choice = layers.IfElse(layers.cast(x(1), "bool"))
    with pytest.raises(ValueError, match="must in true/false blocks"):
        choice.input(x(1))
    with pytest.raises(ValueError, match="in the sub-block"):
        choice.output(x(1))
    with pytest.raises(ValueError, match="before __call__"):
        choice()
    with choice.true_block():
        choice.output(choice.input(x(4)))
        with pytest.raises(ValueError, match="inside a block"):
            choice.false_block()
        with pytest.raises(ValueError, match="out of sub-block"):
            choice()
    with pytest.raises(ValueError, match="Must set output"), choice.false_block():
        choice.input(x(4))


def test_if_else_of_different_outputs() -> None:
    choice = layers.IfElse(layers.cast(x(1), "bool"))
    with choice.true_block():
        choice.output(choice.input(x(4)))
    with choice.false_block():
        choice.output(choice.input(x(4)), choice.input(x(4)))
    with pytest.raises(ValueError, match="1 come from true_block and 2 from false_block"):
        choice()


# ---- recurrent nets


def test_static_rnn_out_of_order() -> None:
    rnn = layers.StaticRNN()
    steps = x(2, 3)
    with pytest.raises(ValueError, match="step_input in rnn block"):
        rnn.step_input(steps)
    with pytest.raises(ValueError, match="memory in rnn block"):
        rnn.memory(init=steps)
    with pytest.raises(ValueError, match="after rnn block"):
        rnn()
    with rnn.step():
        rnn.step_input(steps)
    with pytest.raises(ValueError, match="no output"):
        rnn()


def test_static_rnn_states() -> None:
    def forgotten() -> None:
        rnn = layers.StaticRNN()
        with rnn.step():
            rnn.output(rnn.memory(shape=[-1, 3], batch_ref=rnn.step_input(x(2, 3))))

    refused(ValueError, "updated in every step", forgotten)


@pytest.mark.parametrize(
    ("kind", "match", "use"),
    [
        (ValueError, "shape and batch_ref", lambda rnn, step: rnn.memory(shape=[3])),
        (TypeError, "init", lambda rnn, step: rnn.memory(init=3)),
        (ValueError, "no memory", lambda rnn, step: rnn.update_memory(step, step)),
        (
            ValueError,
            "'y' has 5 steps, an input before 4",
            lambda rnn, step: rnn.step_input(fluid.data("y", [5, 2])),
        ),
    ],
)
def test_misuse_of_a_static_rnn(kind: type[Exception], match: str, use: Any) -> None:
    def build() -> None:
        rnn = layers.StaticRNN()
        with rnn.step():
            use(rnn, rnn.step_input(fluid.data("x", [4, 2, 3])))

    refused(kind, match, build)


def test_dynamic_rnn_out_of_order() -> None:
    rnn = layers.DynamicRNN()
    for use in (rnn.step_input, rnn.static_input, rnn.output):
        with pytest.raises(ValueError, match="inside rnn block"):
            use(x(4, level=1))
    with pytest.raises(ValueError, match="outside the rnn block"):
        rnn()
    with rnn.block():
        rnn.output(rnn.step_input(x(4, level=1)))
    with pytest.raises(ValueError, match="only be invoke once"), rnn.block():
        rnn.output()


@pytest.mark.parametrize(
    ("kind", "match", "use"),
    [
        (RuntimeError, "after step_input", lambda rnn: rnn.static_input(x(4))),
        (ValueError, "before", lambda rnn: rnn.memory(shape=[3])),
        (ValueError, "step_input be invoked", lambda rnn: rnn.memory(x(3), need_reorder=True)),
        (ValueError, "memory before", lambda rnn: rnn.update_memory(x(3), x(3))),
        (ValueError, "needs a step_input", lambda rnn: None),
    ],
)
def test_misuse_of_a_dynamic_rnn(kind: type[Exception], match: str, use: Any) -> None:
    def build() -> None:
        rnn = layers.DynamicRNN()
        with rnn.block():
            use(rnn)

    refused(kind, match, build)


def test_a_dynamic_rnn_over_rows_without_lod(exe: fluid.Executor) -> None:
    rnn = layers.DynamicRNN()
    with rnn.block():
        rnn.output(rnn.step_input(x(4)))
    with pytest.raises(fluid.core.EnforceNotMet, match="LoD"):
        exe.run(feed={"x_0": np.ones((1, 4), np.float32)}, fetch_list=[rnn()])


# ---- arrays, ranks, functions


@pytest.mark.parametrize(
    ("match", "build"),
    [
        ("i", lambda: layers.array_write(x(3), number(dtype="int32"))),
        ("must be a LOD_TENSOR_ARRAY, but 'x_", lambda: layers.array_write(x(3), number(), x(3))),
        ("must be a LOD_TENSOR_ARRAY", lambda: layers.array_read(x(3), number())),
        ("must be a LOD_TENSOR_ARRAY", lambda: layers.array_length(x(3))),
        ("LOD_RANK_TABLE", lambda: layers.reorder_lod_tensor_by_rank(x(3), x(3))),
        ("input", lambda: layers.tensor_array_to_tensor(3)),
        ("pre_ids", lambda: layers.beam_search(x(1), x(1), x(3), x(3), 2, 0)),
        ("ids", lambda: layers.gather_tree(x(2, 3), x(2, 3))),
        ("cond", lambda: layers.Assert(number())),
        ("data", lambda: layers.Assert(true(), number())),
        ("input", lambda: layers.Print(3)),
        ("func.? .. py_func must be", lambda: layers.py_func(3, x(3), x(3, name="y"))),
        ("skip_vars", lambda: layers.py_func(abs, x(3), x(3, name="y"), abs, 3)),
        ("hidden_size", lambda: layers.GRUCell(8.0)),
        ("dtype", lambda: layers.LSTMCell(8, dtype="int32")),
        ("inputs", lambda: layers.rnn(layers.GRUCell(8), 3)),
    ],
)
def test_variable_kind_errors(match: str, build: Callable[[], Any]) -> None:
    refused(TypeError, match, build)


def test_skipped_arguments_are_errors() -> None:
    skip = lambda: layers.py_func(abs, x(3), x(3, name="y"), abs, x(3, name="z"))  # noqa: E731
    refused(ValueError, "Variable z is not found", skip)


def test_a_python_function_returns_a_value_for_each_result(exe: fluid.Executor) -> None:
    out = (
        fluid.default_main_program().global_block().create_var(name="o", dtype="float32", shape=[2])
    )

    def twice(values: Any) -> Any:
        return values, values

    layers.py_func(twice, number(), out)
    with pytest.raises(ValueError, match="py_func: twice returned 2 values, expected 1: one each"):
        exe.run(fetch_list=[out])


def test_an_assertion_that_fails(exe: fluid.Executor) -> None:
    values = x(1)
    layers.Assert(layers.reduce_mean(values) < 1.0, [values])
    held, failed = (np.array([[value]], np.float32) for value in (0.5, 2.0))
    assert exe.run(feed={"x_0": held}, fetch_list=[values])[0] == 0.5
    with pytest.raises(ValueError, match=r"does not hold: \[2.0\]"):
        exe.run(feed={"x_0": failed}, fetch_list=[values])


def test_undeclared_step_output_is_an_error(exe: fluid.Executor) -> None:
    rnn = layers.StaticRNN()
    with rnn.step():
        rnn.step_output(rnn.step_input(x(2)) * 2.0)
    out = rnn()
    del default_main_program().global_block().vars[out.name]
    with pytest.raises(CompileError, match="has no declared shape"):
        exe.run(feed={"x_0": np.zeros((3, 2), np.float32)}, fetch_list=[out.name])


def test_a_phase_that_prints_nothing() -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match="'print_phase' is 'LATER', not FORWARD"):
        layers.Print(layers.data("x", [1]), print_phase="later")
