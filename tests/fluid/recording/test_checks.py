"""Checks of arguments as `fluid.data_feeder` has them, for layers that scripts write."""

import numpy as np
import pytest

import fluid
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
