"""Ops without numbers of their own: what programs may say with them."""

import pytest

from compiler.errors import BadAttribute, MissingSlot
from compiler.ir.opdef import find
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
