"""What is special about ops on sequences: ties, odd LoDs, and what they say of bad input."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from tests.ops.backward import gradients, types_of
from tests.ops.samples import numbers
from tests.ops.samples.sequence import column, lod, rows


def run(kind, inputs, **attrs):
    """Return what an op makes of arrays, once its types are found to go together."""
    op = find(kind)(attrs)
    op.infer_types(types_of(inputs))
    return op.evaluate(inputs)


def test_the_first_of_equal_values_is_the_largest():
    inputs = {"X": np.ones((5, 2), np.float32), "X_lod": lod((2, 3))}
    np.testing.assert_array_equal(
        run("sequence_pool", inputs, pooltype="MAX")["MaxIndex"], [[0, 0], [2, 2]]
    )
    ones = {"Out": np.ones((2, 2), np.float32)}
    result = gradients("sequence_pool", {"pooltype": "MAX"}, inputs, ones)["X"]
    np.testing.assert_array_equal(result[:, 0], [1, 0, 1, 0, 0])


def test_pooling_by_hand():
    inputs = {"X": np.array([[1], [3], [2], [4], [6], [5], [1]], np.float32)}
    inputs["X_lod"] = lod((2, 3, 2, 0))
    expected = {
        "AVERAGE": [2, 4, 3, 0],
        "SUM": [4, 12, 6, 0],
        "SQRT": [4 / 2**0.5, 12 / 3**0.5, 6 / 2**0.5, 0],
        "MAX": [3, 6, 5, 0],
        "LAST": [3, 6, 1, 0],
        "FIRST": [1, 2, 5, 0],
    }
    for kind, want in expected.items():
        actual = run("sequence_pool", inputs, pooltype=kind)["Out"][:, 0]
        np.testing.assert_allclose(actual, want, rtol=1e-6)


def test_pool_of_two_levels_keeps_the_outer_one():
    inputs = {"X": numbers(7, 2), "X_lod": lod((2, 0, 3), (1, 2, 1, 0, 3))}
    result = run("sequence_pool", inputs, pooltype="SUM")
    assert result["Out"].shape == (5, 2)
    np.testing.assert_array_equal(result["Out_lod"], [[0, 2, 2, 5]])


def test_nothing_but_empty_sequences():
    inputs = {"X": np.empty((0, 2), np.float32), "X_lod": lod((0, 0))}
    for kind in ("SUM", "MAX", "LAST"):
        result = run("sequence_pool", inputs, pooltype=kind, pad_value=7.0)["Out"]
        np.testing.assert_array_equal(result, np.full((2, 2), 7))
    filters = {"Filter": numbers(6, 3)}
    assert run("sequence_conv", {**inputs, **filters}, contextLength=3)["Out"].shape == (0, 3)


def test_softmax_of_large_numbers_is_finite():
    inputs = {"X": np.array([1000.0, 1001.0, 5.0], np.float32), "X_lod": lod((2, 1))}
    result = run("sequence_softmax", inputs)["Out"]
    np.testing.assert_allclose(result, [0.26894142, 0.7310586, 1.0], rtol=1e-6)


def test_convolution_by_hand():
    """A window of one row before, the row and one after; zeros outside of the sequence."""
    inputs = {"X": np.array([[1], [2], [3], [4]], np.float32), "X_lod": lod((3, 1))}
    inputs["Filter"] = np.array([[100], [10], [1]], np.float32)
    result = run("sequence_conv", inputs, contextStart=-1, contextLength=3)["Out"]
    np.testing.assert_array_equal(result[:, 0], [12, 123, 230, 40])


def test_trained_padding_by_hand():
    inputs = {"X": np.array([[1], [2], [3]], np.float32), "X_lod": lod((2, 1))}
    inputs |= {"Filter": np.array([[100], [10], [1]], np.float32)}
    inputs["PaddingData"] = np.array([[7], [9]], np.float32)
    attrs = {"contextStart": -1, "contextLength": 3, "paddingTrainable": True}
    result = run("sequence_conv", inputs, **attrs)["Out"]
    np.testing.assert_array_equal(result[:, 0], [712, 129, 739])


def test_lod_of_y_precedes_its_numbers_and_before_append():
    inputs = {**rows((2, 4), 1), **rows((1, 2, 3), 1, slot="Y")}
    result = run("lod_reset", inputs, append=True)
    np.testing.assert_array_equal(result["Out_lod"], [[0, 1, 3, 6]])


PAIR = {"X": numbers(3, 2), "X_lod": lod((2, 1))}
TWO_LEVELS = {"X": numbers(3, 2), "X_lod": lod((1, 1), (2, 1))}
WORDS = {"X": column(1, 2, 3), "X_lod": lod((2, 1))}


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "message"),
    [
        (
            "sequence_slice",
            {**PAIR, "Offset": column(0, 0), "Length": column(1, 2)},
            {},
            "sequence_slice: sequence 1 has 1 rows, which Offset 0 and Length 2 reach beyond",
        ),
        (
            "sequence_pad",
            {**PAIR, "PadValue": numbers(1)},
            {"padded_length": 1},
            "sequence_pad: a sequence has 2 rows, and 'padded_length' is 1",
        ),
        (
            "sequence_unpad",
            {"X": numbers(2, 3, 1), "Length": np.array([1, 4])},
            {},
            "sequence_unpad: Length of sequence 1 is 4, and X has 3 rows for each",
        ),
        (
            "sequence_reshape",
            PAIR,
            {"new_dim": 4},
            "sequence_reshape: sequences of [4, 2] numbers do not fill rows of 4",
        ),
        (
            "lod_reset",
            {"X": numbers(3, 2)},
            {"target_lod": [0, 2, 1, 3]},
            "lod_reset: [0, 2, 1, 3] are not the offsets of sequences in 3 rows",
        ),
        (
            "lod_reset",
            {"X": numbers(3, 2), "Y": np.array([0, 2], np.int32)},
            {},
            "lod_reset: [0, 2] are not the offsets of sequences in 3 rows",
        ),
        (
            "sequence_scatter",
            {
                "X": numbers(2, 4),
                "Ids": column(0, 4, 1),
                "Ids_lod": lod((2, 1)),
                "Updates": numbers(3, 1),
            },
            {},
            "sequence_scatter: Ids has 4, but a row of X has the columns 0 to 3",
        ),
    ],
)
def test_wrong_values(kind, inputs, attrs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(kind, inputs, **attrs)


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "message"),
    [
        ("sequence_conv", {**TWO_LEVELS, "Filter": numbers(6, 3)}, {"contextLength": 3}, "2 LoD"),
        ("sequence_conv", {**PAIR, "Filter": numbers(5, 3)}, {"contextLength": 3}, "Filter f32[5"),
        (
            "sequence_conv",
            {**PAIR, "Filter": numbers(6, 3), "PaddingData": numbers(1, 2)},
            {"contextLength": 3, "contextStart": -1, "paddingTrainable": True},
            "PaddingData is f32[1, 2], expected f32[2, 2]",
        ),
        (
            "sequence_conv",
            {**PAIR, "Filter": numbers(6, 3), "PaddingData": numbers(2, 1)},
            {"contextLength": 3, "contextStart": -1, "paddingTrainable": True},
            "PaddingData is f32[2, 1], expected f32[2, 2]",
        ),
        ("sequence_reverse", TWO_LEVELS, {}, "X has 2 LoD levels, expected 1"),
        ("sequence_softmax", PAIR, {}, "X is f32[3, 2], expected [rows, 1]"),
        ("sequence_erase", PAIR, {}, "expected element type i32 or i64"),
        ("sequence_enumerate", {**WORDS, "X": column(1, 2, 3).T}, {"win_size": 2}, "[rows, 1]"),
        (
            "sequence_expand",
            {"X": numbers(3, 2), "Y": numbers(3, 1), "Y_lod": lod((1, 2))},
            {},
            "X has 3 sequences, and level -1 of Y has 2, expected as many",
        ),
        (
            "sequence_expand_as",
            {"X": numbers(3, 2), "Y": numbers(3, 1), "Y_lod": lod((1, 2))},
            {},
            "has 3 rows, and Y 2 sequences, expected as many",
        ),
        (
            "sequence_concat",
            {"X": [numbers(3, 2), numbers(2, 2)], "X_lod": lod((1, 2)) + lod((2,))},
            {},
            "X[1] has 1 sequences, and X[0] 2, expected as many",
        ),
        (
            "sequence_concat",
            {"X": [numbers(3, 2), numbers(2, 3)], "X_lod": lod((1, 2)) + lod((1, 1))},
            {},
            "X[1] is f32[2, 3], and X[0] f32[3, 2]",
        ),
        ("sequence_pad", {**PAIR, "PadValue": numbers(3)}, {}, "one number or the shape of a row"),
        (
            "sequence_slice",
            {**PAIR, "Offset": column(0), "Length": column(1, 1)},
            {},
            "Offset is i64[1, 1], expected a number for each of the 2 sequences",
        ),
        (
            "row_conv",
            {"X": numbers(3, 2), "Filter": numbers(2, 2)},
            {},
            "expected X [rows, size] with a LoD, or [batch, length, size]",
        ),
    ],
)
def test_sequence_shape_errors(kind, inputs, attrs, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        run(kind, inputs, **attrs)


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "message"),
    [
        ("sequence_pool", PAIR, {"pooltype": "MEAN"}, "'pooltype' is 'MEAN', not AVERAGE"),
        ("sequence_enumerate", WORDS, {"win_size": 1}, "'win_size' is 1, not above 1"),
        ("sequence_reshape", PAIR, {"new_dim": 0}, "'new_dim' is 0, not above 0"),
        ("sequence_mask", {"X": column(1)}, {"maxlen": 0, "out_dtype": 3}, "'maxlen' is 0"),
        ("lod_reset", {"X": numbers(3, 2)}, {}, "'target_lod' is [], expected offsets"),
        (
            "sequence_conv",
            {**PAIR, "Filter": numbers(6, 3)},
            {"contextLength": 3, "contextStride": 2},
            "'contextStride' is 2",
        ),
        (
            "sequence_expand",
            {"X": numbers(2, 2), "Y": numbers(3, 1), "Y_lod": lod((1, 2))},
            {"ref_level": 1},
            "'ref_level' is 1, and Y has 1 levels",
        ),
    ],
)
def test_attributes_that_mean_nothing(kind, inputs, attrs, message):
    with pytest.raises(BadAttribute, match=re.escape(message)):
        run(kind, inputs, **attrs)
