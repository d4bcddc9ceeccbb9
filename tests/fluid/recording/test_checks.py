"""Checks of arguments as `fluid.data_feeder` has them, for layers that scripts write."""

import numpy as np
import pytest

import fluid
from compiler.errors import MissingSlot
from fluid.data_feeder import check_dtype, check_type, check_variable_and_dtype


def test_the_message_ends_in_what_a_script_adds() -> None:
    with pytest.raises(
        TypeError, match=r"type of 'k' in topk must be int, but received str.* Ask us"
    ):
        check_type("a", "k", int, "topk", extra_message="Ask us")
    check_type(input=np.int64(3), input_name="k", expected_type=(int, float), op_name="topk")


def test_element_types_are_checked_by_keyword(fresh_programs: object) -> None:
    x = fluid.data("x", [2], "int64")
    with pytest.raises(TypeError, match="must be one of float32, but received int64 Cast it"):
        check_variable_and_dtype(
            input=x, input_name="x", expected_dtype=["float32"], op_name="mine",
            extra_message="Cast it",
        )  # fmt: skip
    check_dtype(input_dtype="int64", input_name="x", expected_dtype=["int64"], op_name="mine")
    with pytest.raises(TypeError):
        check_variable_and_dtype(3, "x", ["int64"], "mine")


def test_arrays_and_variables_of_the_other_mode(fresh_programs: object) -> None:
    array = np.ones([2, 4], "f4")
    x = fluid.data("x", [None, 4])
    shape = r"ndarray of shape \(2, 4\) and type float32; fluid.layers.assign\(array\) makes"
    with pytest.raises(TypeError, match=shape):
        fluid.layers.relu(array)
    with fluid.dygraph.guard():
        value = fluid.dygraph.to_variable(array)
        with pytest.raises(TypeError, match=r"received ndarray; .*to_variable\(array\) in eager"):
            fluid.dygraph.Linear(4, 3)(array)
        with pytest.raises(TypeError, match="received 'x', a variable of a program without a valu"):
            fluid.layers.relu(x)
    with pytest.raises(TypeError, match=f"slot Y takes .* but '{value.name}' has the value of eag"):
        fluid.layers.elementwise_add(x, value)


def test_variables_of_another_program(fresh_programs: object) -> None:
    x = fluid.data("x", [None, 4])
    other = fluid.Program()
    with fluid.program_guard(other), pytest.raises(MissingSlot, match="slot X reads 'x', a variab"):
        fluid.layers.relu(x)
    assert other.global_block().ops == []
    with fluid.program_guard(other):
        fluid.data("x", [None, 4])
        fluid.layers.relu(x)  # as in release 1.8.5 names count
