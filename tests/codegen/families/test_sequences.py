"""Ops over sequences of any lengths, empty ones among them, and recurrent ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import SMALL, assert_matches_reference, drawn
from tests.ops.samples import Sample, numbers
from tests.ops.samples.recurrent import gated, memory
from tests.ops.samples.sequence import lod, pooled, rows

pytestmark = pytest.mark.device

LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(sum).map(tuple)
FULL = st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple)
POOLS = ["SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"]
X = ("X",)


@drawn(15)
@given(LENGTHS, st.sampled_from(POOLS))
def test_pools(lengths, kind):
    assert_matches_reference(pooled(kind, lengths))


@drawn(6)
@given(LENGTHS)
def test_softmax(lengths):
    assert_matches_reference(Sample("sequence_softmax", rows(lengths, 1), {}, X))


@drawn(8)
@given(LENGTHS, SMALL, st.sampled_from(["sequence_reverse"]))
def test_turned_round(lengths, width, op):
    assert_matches_reference(Sample(op, rows(lengths, width), {}, X))


@drawn(8)
@given(st.data(), LENGTHS, SMALL)
def test_convolution(data, lengths, width):
    taps, start = data.draw(st.integers(1, 4)), data.draw(st.integers(-3, 1))
    inputs = {**rows(lengths, width), "Filter": numbers(taps * width, 3, seed=1)}
    attrs = {"contextStart": start, "contextLength": taps}
    assert_matches_reference(Sample("sequence_conv", inputs, attrs, ("X", "Filter")), loosely=3)


@drawn(6)
@given(LENGTHS, SMALL, st.integers(1, 4))
def test_rows_ahead(lengths, width, ahead):
    inputs = {**rows(lengths, width), "Filter": numbers(ahead, width, seed=1)}
    assert_matches_reference(Sample("row_conv", inputs, {}, ("X", "Filter")), loosely=3)


@drawn(6)
@given(LENGTHS, SMALL)
def test_one_row_for_each_sequence(lengths, width):
    inputs = {"X": numbers(len(lengths), width), "Y": numbers(sum(lengths), 1, seed=1)}
    inputs["Y_lod"] = lod(lengths)
    assert_matches_reference(Sample("sequence_expand_as", inputs, {}, X))


@drawn(8)
@given(FULL, st.booleans(), st.booleans(), st.booleans())
def test_lstm(lengths, initial, peepholes, reverse):
    sample = memory(lengths, initial, use_peepholes=peepholes, is_reverse=reverse)
    assert_matches_reference(sample, loosely=5)


@drawn(8)
@given(FULL, st.booleans(), st.booleans(), st.booleans())
def test_gru(lengths, initial, reverse, origin):
    assert_matches_reference(
        gated(lengths, initial, is_reverse=reverse, origin_mode=origin), loosely=5
    )
