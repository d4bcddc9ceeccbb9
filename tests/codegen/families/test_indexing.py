"""Rows and elements by their numbers: gathered, scattered, looked up, repeated ones among them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import (
    BATCHES,
    SEEDS,
    SIZES,
    SMALL,
    assert_matches_reference,
    drawn,
    shapes,
)
from tests.ops.samples import Sample, integers, numbers

pytestmark = pytest.mark.device


@drawn(12)
@given(st.data(), shapes(1, 3), SIZES, SEEDS)
def test_gather(data, shape, count, seed):
    axis = data.draw(st.integers(0, len(shape) - 1))
    index = integers(count, high=shape[axis], seed=seed)
    inputs = {"X": numbers(*shape), "Index": index}
    assert_matches_reference(Sample("gather", inputs, {"axis": axis, "overwrite": False}, ("X",)))


@drawn(10)
@given(st.data(), shapes(1, 3), BATCHES, SEEDS)
def test_gather_nd(data, shape, batch, seed):
    depth = data.draw(st.integers(1, len(shape)))
    columns = [integers(batch, high=size, seed=seed + i) for i, size in enumerate(shape[:depth])]
    inputs = {"X": numbers(*shape), "Index": np.stack(columns, axis=-1)}
    assert_matches_reference(Sample("gather_nd", inputs, {}, ("X",)), batch=batch)


@drawn(10)
@given(st.data(), SIZES, shapes(0, 2), SIZES, SEEDS)
def test_scatter(data, rows, rest, count, seed):
    overwrite = data.draw(st.booleans())
    ids = integers(count, high=rows, seed=seed)
    inputs = {"X": numbers(rows, *rest), "Ids": ids, "Updates": numbers(count, *rest, seed=1)}
    assert_matches_reference(Sample("scatter", inputs, {"overwrite": overwrite}))


@drawn(8)
@given(st.data(), shapes(1, 3), SIZES, SEEDS)
def test_scatter_nd_add(data, shape, count, seed):
    depth = data.draw(st.integers(1, len(shape)))
    columns = [integers(count, high=size, seed=seed + i) for i, size in enumerate(shape[:depth])]
    updates = numbers(count, *shape[depth:], seed=2)
    inputs = {"X": numbers(*shape), "Index": np.stack(columns, axis=-1), "Updates": updates}
    assert_matches_reference(Sample("scatter_nd_add", inputs, {}, ("X", "Updates")))


@drawn(8)
@given(st.data(), SIZES, SIZES, BATCHES, SEEDS)
def test_index_select_and_sample(data, columns, count, batch, seed):
    index = integers(count, high=columns, seed=seed)
    inputs = {"X": numbers(batch, columns), "Index": index}
    assert_matches_reference(Sample("index_select", inputs, {"dim": 1}, ("X",)), batch=batch)
    inputs["Index"] = integers(batch, count, high=columns, seed=seed)
    assert_matches_reference(Sample("index_sample", inputs, {}, ("X",)), batch=batch)


@drawn(12)
@given(st.data(), SIZES, SIZES, SMALL, BATCHES, SEEDS)
def test_look_ups(data, height, width, length, batch, seed):
    ids = integers(batch, length, high=height, seed=seed)
    attrs = {"padding_idx": data.draw(st.sampled_from([-1, 0]))}
    inputs = {"W": numbers(height, width), "Ids": ids}
    assert_matches_reference(Sample("lookup_table_v2", inputs, attrs, ("W",)), batch=batch)


@drawn(8)
@given(SIZES, SIZES, SIZES, SEEDS)
def test_rows_of_sparse_gradients(height, width, count, seed):
    rows = integers(count, high=height, seed=seed)
    inputs = {"X": numbers(count, width), "X_rows": rows}
    assert_matches_reference(Sample("densify_rows", inputs, {"height": height}))


@drawn(8)
@given(st.data(), SIZES, SMALL, BATCHES, SEEDS)
def test_one_hot_and_where(data, depth, more, batch, seed):
    labels = integers(batch, 1, high=depth, seed=seed)
    assert_matches_reference(Sample("one_hot", {"X": labels}, {"depth": depth}), batch=batch)
    condition = numbers(batch, more, seed=seed) > 0
    inputs = {"Condition": condition, "X": numbers(batch, more), "Y": numbers(batch, more, seed=1)}
    assert_matches_reference(Sample("where", inputs, {}, ("X", "Y")), batch=batch)
