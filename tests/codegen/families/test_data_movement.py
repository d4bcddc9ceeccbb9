"""Ops that only move data: concat, split, transpose, pad, stack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import (
    BATCHES,
    SIZES,
    SMALL,
    assert_matches_reference,
    drawn,
    shapes,
)
from tests.ops.samples import Sample, numbers

pytestmark = pytest.mark.device

X = ("X",)


@drawn(6)
@given(st.data(), shapes(1, 3), BATCHES)
def test_concat_and_split(data, shape, batch):
    shape = (batch, *shape)
    axis = data.draw(st.integers(1, len(shape) - 1))
    sizes = data.draw(st.lists(SMALL, min_size=1, max_size=4))
    parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]
    terms = [numbers(*part, seed=i) for i, part in enumerate(parts)]
    assert_matches_reference(Sample("concat", {"X": terms}, {"axis": axis}, X), batch=batch)
    whole = np.concatenate(terms, axis)
    assert_matches_reference(
        Sample("split", {"X": whole}, {"sections": sizes, "axis": axis}, X), batch=batch
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "int32", "bool"])
def test_rows_that_share_sectors(dtype):
    parts = [np.random.default_rng(n).integers(0, 2, (13, n, 3)).astype(dtype) for n in (3, 1, 4)]
    grads = ("X",) if dtype in ("float32", "float64") else ()
    assert_matches_reference(Sample("concat", {"X": parts}, {"axis": 1}, grads), batch=13)
    attrs = {"sections": [3, 1, 4], "axis": 1}
    assert_matches_reference(
        Sample("split", {"X": np.concatenate(parts, 1)}, attrs, grads), batch=13
    )


@pytest.mark.parametrize("sizes", [[1] * 11, [2, 0, 3], [5, 131], [7, 300], [8, 16]], ids=str)
def test_many_parts_long_and_empty_ones(sizes):
    parts = [np.random.default_rng(n).random((11, 2, n), "f4") for n in sizes]
    assert_matches_reference(Sample("concat", {"X": parts}, {"axis": -1}, X), batch=11)
    attrs = {"sections": sizes, "axis": -1}
    assert_matches_reference(Sample("split", {"X": np.concatenate(parts, -1)}, attrs, X), batch=11)


@drawn(7)
@given(st.data(), shapes(1, 4))
def test_slices(data, shape):
    axis = data.draw(st.integers(0, len(shape) - 1))
    size = shape[axis]
    start = data.draw(st.integers(-size, size - 1))
    end = data.draw(st.integers(start % size + 1, size + 3))
    attrs = {"axes": [axis], "starts": [start], "ends": [end]}
    inputs = {"Input": numbers(*shape)}
    assert_matches_reference(Sample("slice", inputs, attrs, ("Input",)))
    strides = {**attrs, "strides": [data.draw(st.integers(1, 3))]}
    assert_matches_reference(Sample("strided_slice", inputs, strides, ("Input",)))


@drawn(6)
@given(st.data(), shapes(1, 4), BATCHES)
def test_transpose(data, shape, batch):
    x = numbers(batch, *shape)
    axes = data.draw(st.permutations(range(x.ndim)))
    assert_matches_reference(Sample("transpose2", {"X": x}, {"axis": list(axes)}, X), batch=batch)


@drawn(6)
@given(st.data(), shapes(1, 3), BATCHES)
def test_pad_and_crop(data, shape, batch):
    edges = [data.draw(st.integers(0, 3)) for _ in range(2 * len(shape))]
    inputs = {"X": numbers(batch, *shape)}
    attrs = {"paddings": [0, 0, *edges], "pad_value": 0.5}
    assert_matches_reference(Sample("pad", inputs, attrs, X), batch=batch)
    offsets = [data.draw(st.integers(0, size - 1)) for size in shape]
    kept = [data.draw(st.integers(1, n - o)) for n, o in zip(shape, offsets, strict=True)]
    assert_matches_reference(
        Sample("crop", {"X": numbers(*shape)}, {"shape": kept, "offsets": offsets}, X)
    )


@drawn(4)
@given(st.data(), BATCHES, SIZES, SIZES)
def test_padded_images(data, batch, height, width):
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge"]))
    most = 3 if mode != "reflect" else min(3, height - 1, width - 1)
    edges = [data.draw(st.integers(0, most)) for _ in range(4)]
    inputs = {"X": numbers(batch, 2, height, width)}
    assert_matches_reference(
        Sample("pad2d", inputs, {"mode": mode, "paddings": edges}, X), batch=batch
    )


@drawn(8)
@given(st.data(), shapes(1, 3), st.sampled_from(["stack", "tile", "expand", "flip", "roll"]))
def test_laid_out(data, shape, op):
    axis = data.draw(st.integers(0, len(shape) - 1))
    times = [data.draw(st.integers(1, 3)) for _ in shape]
    attrs = {
        "stack": {"axis": axis},
        "tile": {"repeat_times": times},
        "expand": {"expand_times": times},
        "flip": {"dims": [axis]},
        "roll": {"shifts": [times[0] - 2], "dims": [axis]},
    }
    x = numbers(*shape)
    assert_matches_reference(Sample(op, {"X": [x, x + 1] if op == "stack" else x}, attrs[op], X))
