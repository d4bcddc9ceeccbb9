"""Ops without numbers of their own: what programs may say with them."""

import numpy as np
import pytest

from compiler.errors import BadAttribute, MissingSlot
from compiler.ir.opdef import find, type_of
from compiler.ir.opdef.type_inference import bind, check_slots
from compiler.ir.program import BlockRef, OpDesc


def test_conditional_block_names_its_block():
    attrs = {"sub_block": BlockRef(1), "is_scalar_condition": True}
    op = OpDesc("conditional_block", {"Cond": ["c"], "Input": []}, {"Out": ["lr"]}, attrs)
    check_slots(op)
    assert bind(op).attributes["sub_block"] == 1


def test_conditional_block_with_a_number_for_its_block():
    with pytest.raises(BadAttribute, match="'sub_block' is int 1, not BlockRef"):
        find("conditional_block")({"sub_block": 1})


def test_conditional_block_needs_a_condition():
    op = OpDesc("conditional_block", {"Input": ["x"]}, {"Out": ["y"]}, {"sub_block": BlockRef(1)})
    with pytest.raises(MissingSlot, match="Input Cond not found"):
        check_slots(op)


@pytest.mark.parametrize("kind", ["feed", "fetch", "delete_var"])
def test_work_for_the_host_is_never_removed(kind):
    assert find(kind).has_effects


@pytest.mark.parametrize("kind", ["feed", "fetch"])
def test_feed_and_fetch_need_a_column(kind):
    with pytest.raises(BadAttribute, match="needs the attribute 'col'"):
        find(kind)({})


def merged(true: int, false: int):
    """The result of merging so many rows of each branch, 2 of 3 true; X has 5 rows."""
    inputs = {
        "X": np.zeros((5, 1), np.float32),
        "Mask": np.array([[True], [False], [True]]),
        "InTrue": np.arange(true).reshape(-1, 1),
        "InFalse": 10 + np.arange(false).reshape(-1, 1),
    }
    op = find("merge_lod_tensor")({})
    types = {slot: type_of(array) for slot, array in inputs.items()}
    return op.infer_types(types)["Out"].shape, op.evaluate(inputs)["Out"]


def test_branches_are_merged_in_as_many_rows_as_the_mask_has():
    """X has the LoD alone, as in PaddlePaddle 1.8.5."""
    shape, result = merged(2, 1)
    assert shape == result.shape == (3, 1)
    assert result.ravel().tolist() == [0, 10, 1]


@pytest.mark.parametrize(
    ("true", "false", "message"),
    [
        (3, 1, "InTrue has 3 entries, but Mask is True for 2 of 3"),
        (2, 0, "InFalse has 0 entries, but Mask is False for 1 of 3"),
    ],
)
def test_branches_unlike_the_mask_are_refused(true, false, message):
    with pytest.raises(ValueError, match=message):
        merged(true, false)


@pytest.mark.parametrize(("dtype", "expected"), [(5, np.float32), (6, np.float64)])
def test_gradient_of_a_state_that_nothing_reads_is_zeros(dtype, expected):
    op = OpDesc("rnn_memory_helper_grad", {"X": ["x"], "Out": ["y"]}, {"X@GRAD": ["d"]}, {})
    check_slots(op)
    state = np.ones((2, 3), expected)
    gradient = find("rnn_memory_helper_grad")({"dtype": dtype}).evaluate({"X": state, "Out": state})
    assert gradient["X@GRAD"].dtype == expected
    np.testing.assert_array_equal(gradient["X@GRAD"], np.zeros((2, 3)))
