"""Types of outputs in programs that are being recorded; levels are those of release 1.8.5."""

import pytest

import fluid
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import OpDesc
from fluid import layers

pytestmark = pytest.mark.usefixtures("fresh_programs")


def output(slot: str) -> fluid.Variable:
    """The output of the last op."""
    block = fluid.default_main_program().global_block()
    return block.var(block.ops[-1].output(slot)[0])


def test_outputs_that_have_no_lod_have_no_levels() -> None:
    rows = layers.data("rows", [3], lod_level=1)
    assert layers.dropout(rows, 0.5).lod_level == 1
    assert output("Mask").lod_level == 0
    layers.layer_norm(rows)
    assert [output(slot).lod_level for slot in ("Y", "Mean", "Variance")] == [1, 0, 0]


def test_outputs_of_other_rows_share_the_levels_of_their_input() -> None:
    rows = layers.data("rows", [3], lod_level=1)
    layers.transpose(rows, [1, 0])
    assert [output(slot).lod_level for slot in ("Out", "XShape")] == [0, 1]


def test_the_lod_levels_of_a_feed_may_be_more_than_the_op_takes() -> None:
    rows = layers.data("rows", [3], lod_level=2)
    assert layers.sequence_conv(rows, 4).shape == (-1, 4)
    assert layers.sequence_pool(rows, "sum").lod_level == 1


def test_only_the_inputs_that_do_not_fit_have_another_dtype_than_declared() -> None:
    rows = layers.data("rows", [3])
    tags, wanted = layers.data("tags", [1], lod_level=1), layers.data("wanted", [1])
    found, _ = layers.filter_by_instag(rows, tags, wanted, is_lod=True)
    assert found.dtype == rows.dtype


def test_messages_list_the_first_of_many_names() -> None:
    names = [f"o{number}" for number in range(20_000)]
    text = op_text(OpDesc("split", {"X": ["x"]}, {"Out": names}))
    assert text.endswith("+o11+… (19988 more)) = split(X=x)")
    assert op_text(OpDesc("sum", {"X": names[:13]}, {"Out": ["y"]})).count("+") == 12
