"""Reductions over any axes, extremes and their places, running sums and sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.families.support import (
    BATCHES,
    SEEDS,
    SMALL,
    assert_matches_reference,
    drawn,
    shapes,
)
from tests.ops.samples import Sample, integers, numbers

pytestmark = pytest.mark.device

DTYPES = st.sampled_from(["float32", "float32", "float64", "float16", "int32", "int64"])
FOLDS = st.sampled_from(["sum", "mean", "max", "min"])


@st.composite
def axes(draw, rank):
    """Draw axes of a tensor, from either end."""
    chosen = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return [axis - rank * draw(st.booleans()) for axis in chosen]


@drawn(15)
@given(st.data(), shapes(0, 3), BATCHES, FOLDS, DTYPES, SEEDS, st.booleans())
def test_folds(data, shape, batch, fold, dtype, seed, keep):
    shape = (batch, *shape)
    x = numbers(*shape, seed=seed) if "float" in dtype else integers(*shape, high=50, seed=seed)
    attrs = {"dim": data.draw(axes(len(shape))), "keep_dim": keep}
    grads = ("X",) if dtype in ("float32", "float64") else ()
    assert_matches_reference(
        Sample(f"reduce_{fold}", {"X": x.astype(dtype)}, attrs, grads), batch=batch
    )


@drawn(8)
@given(st.data(), shapes(1, 3), st.sampled_from(["prod", "all", "any"]), SEEDS)
def test_products_and_truths(data, shape, fold, seed):
    x = numbers(*shape, low=0.8, high=1.2, seed=seed)
    truths = numbers(*shape, low=-9, seed=seed) < 0
    attrs = {"dim": data.draw(axes(len(shape)))}
    sample = Sample(f"reduce_{fold}", {"X": x}, attrs, ("X",))
    assert_matches_reference(
        sample if fold == "prod" else Sample(f"reduce_{fold}", {"X": truths}, attrs)
    )


@drawn(8)
@given(shapes(1, 3), st.sampled_from(["mean", "squared_l2_norm", "l1_norm", "isfinite"]), BATCHES)
def test_all_of_a_tensor(shape, op, batch):
    grads = () if op == "isfinite" else ("X",)
    assert_matches_reference(Sample(op, {"X": numbers(batch, *shape)}, {}, grads), batch=batch)


@drawn(8)
@given(st.data(), shapes(1, 3), st.booleans(), SEEDS)
def test_argmax_and_argmin(data, shape, most, seed):
    x = integers(*shape, high=9, seed=seed).astype(data.draw(DTYPES))
    attrs = {"axis": data.draw(st.integers(-len(shape), len(shape) - 1))}
    assert_matches_reference(Sample("arg_max" if most else "arg_min", {"X": x}, attrs))


@drawn(8)
@given(st.data(), shapes(1, 3), BATCHES, st.booleans(), st.booleans(), SEEDS)
def test_running_sums(data, shape, batch, exclusive, reverse, seed):
    shape = (batch, *shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64", "int32"]))
    x = (100 * numbers(*shape, seed=seed)).astype(dtype)
    assert_matches_reference(Sample("cumsum", {"X": x}, attrs), batch=batch, loosely=10)


@drawn(5)
@given(st.data(), shapes(1, 3), st.booleans(), SEEDS)
def test_sorting(data, shape, descending, seed):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = integers(*shape, high=12, seed=seed).astype(data.draw(DTYPES))
    grads = ("X",) if x.dtype == np.float32 else ()
    assert_matches_reference(
        Sample("argsort", {"X": x}, {"axis": axis, "descending": descending}, grads)
    )


@drawn(4)
@given(st.data(), shapes(1, 2, SMALL), BATCHES, SEEDS)
def test_the_first_few(data, shape, batch, seed):
    shape = (batch, *shape)
    axis = data.draw(st.integers(1, len(shape) - 1))
    count = data.draw(st.integers(1, shape[axis]))
    attrs = {"k": count, "axis": axis, "largest": data.draw(st.booleans())}
    assert_matches_reference(
        Sample("top_k_v2", {"X": numbers(*shape, seed=seed)}, attrs, ("X",)), batch=batch
    )
