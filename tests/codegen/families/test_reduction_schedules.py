"""Reductions in every form: tiles are made so small here that small shapes need many of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.families.support import (
    BATCHES,
    SEEDS,
    SMALL,
    assert_matches_reference,
    drawn,
    shapes,
)
from tests.ops.samples import Sample, numbers
from tests.ops.samples.norm import normalisation, scaled

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    """Let a program compute 32 numbers, and split reductions of more than 24."""
    assert all_thresholds()["program_tile"].small == 32
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


@drawn(6)
@given(
    st.data(), shapes(0, 2, SMALL), BATCHES, st.sampled_from(["sum", "mean", "max", "min"]), SEEDS
)
def test_folds(data, shape, batch, fold, seed):
    shape = (batch, *shape)
    axes = st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True)
    dtype = data.draw(st.sampled_from(["float32", "float64", "int64"]))
    x = (9 * numbers(*shape, seed=seed)).astype(dtype)
    grads = ("X",) if "float" in dtype else ()
    assert_matches_reference(
        Sample(f"reduce_{fold}", {"X": x}, {"dim": data.draw(axes)}, grads), batch=batch
    )


@drawn(3)
@given(st.data(), shapes(0, 2, SMALL), BATCHES, SEEDS)
def test_softmax_and_argmax(data, shape, batch, seed):
    shape = (batch, *shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = numbers(*shape, low=-5, high=5, seed=seed)
    assert_matches_reference(Sample("softmax", {"X": x}, {"axis": axis}, ("X",)), batch=batch)
    assert_matches_reference(Sample("arg_max", {"X": x}, {"axis": axis}), batch=batch)


@drawn(3)
@given(shapes(1, 2, SMALL), BATCHES)
def test_layer_norm(shape, batch):
    size = int(np.prod(shape))
    sample = scaled("layer_norm", (batch, *shape), size, begin_norm_axis=1, epsilon=1e-3)
    assert_matches_reference(sample, batch=batch, loosely=10)


@drawn(2)
@given(shapes(2, 2, SMALL), st.integers(1, 4), BATCHES, st.sampled_from(["NCHW", "NHWC"]))
def test_batch_and_group_norm(image, channels, batch, layout):
    shape = (batch, channels, *image) if layout == "NCHW" else (batch, *image, channels)
    assert_matches_reference(
        normalisation(shape, channels, data_layout=layout), batch=batch, loosely=10
    )
    attrs = {"groups": 1, "epsilon": 1e-2, "data_layout": layout}
    assert_matches_reference(
        scaled("group_norm", shape, channels, **attrs), batch=batch, loosely=10
    )


@drawn(3)
@given(shapes(1, 2, SMALL), BATCHES, st.sampled_from(["mean", "squared_l2_norm"]))
def test_all_of_a_tensor(shape, batch, op):
    assert_matches_reference(Sample(op, {"X": numbers(batch, *shape)}, {}, ("X",)), batch=batch)
