"""Softmax, cross entropies and norms over rows, groups and channels."""

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
from tests.ops.samples.norm import normalisation, scaled

pytestmark = pytest.mark.device

LAYOUTS = st.sampled_from(["NCHW", "NHWC"])


@drawn(7)
@given(st.data(), shapes(0, 3), BATCHES, st.sampled_from(["softmax", "log_softmax"]), SEEDS)
def test_softmax(data, shape, batch, op, seed):
    shape = (batch, *shape)
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    x = numbers(*shape, low=-5, high=5, seed=seed).astype(dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_matches_reference(Sample(op, {"X": x}, {"axis": axis}, ("X",)), batch=batch)


@drawn(8)
@given(st.data(), SIZES, SIZES, BATCHES, SEEDS)
def test_softmax_with_cross_entropy(data, classes, behind, batch, seed):
    axis = data.draw(st.sampled_from([-1, 1]))
    shape = (batch, classes) if axis == -1 else (batch, classes, behind)
    logits = numbers(*shape, low=-5, high=5, seed=seed)
    attrs = {"axis": axis, "soft_label": data.draw(st.booleans())}
    if attrs["soft_label"]:
        label = np.abs(numbers(*shape, seed=seed + 1))
        label /= label.sum(axis=1, keepdims=True)
    else:
        label = integers(batch, 1, *shape[2:], high=classes, seed=seed)
        attrs["ignore_index"] = data.draw(st.sampled_from([-100, 0]))
    inputs = {"Logits": logits, "Label": label}
    assert_matches_reference(
        Sample("softmax_with_cross_entropy", inputs, attrs, ("Logits",)), batch=batch
    )


@drawn(6)
@given(st.data(), SIZES, BATCHES, SEEDS)
def test_cross_entropy(data, classes, batch, seed):
    shares = numbers(batch, classes, low=0.1, high=0.9, seed=seed)
    label = integers(batch, 1, high=classes, seed=seed)
    op = data.draw(st.sampled_from(["cross_entropy", "cross_entropy2"]))
    assert_matches_reference(Sample(op, {"X": shares, "Label": label}, {}, ("X",)), batch=batch)


@drawn(8)
@given(st.data(), shapes(1, 3), BATCHES)
def test_layer_norm(data, shape, batch):
    shape = (batch, *shape)
    axis = data.draw(st.integers(1, len(shape) - 1))
    inputs = data.draw(st.sampled_from(["Scale Bias", "Scale", "Bias", ""]))
    size = int(np.prod(shape[axis:]))
    sample = scaled("layer_norm", shape, size, inputs, begin_norm_axis=axis, epsilon=1e-3)
    assert_matches_reference(sample, batch=batch, loosely=5)


@drawn(7)
@given(st.data(), shapes(1, 2), SMALL, BATCHES, LAYOUTS)
def test_group_norm(data, image, channels, batch, layout):
    each = (channels - 1) // data.draw(st.integers(1, channels)) + 1
    groups = -(-channels // each)
    shape = (batch, channels, *image, 2)[: 2 + len(image)]
    shape = (*shape, 2) if len(shape) == 3 else shape
    shape = shape if layout == "NCHW" else (shape[0], *shape[2:], shape[1])
    sample = scaled("group_norm", shape, channels, groups=groups, epsilon=1e-2, data_layout=layout)
    assert_matches_reference(sample, batch=batch, loosely=10)


@drawn(4)
@given(shapes(2, 2), SMALL, BATCHES)
def test_instance_norm(image, channels, batch):
    sample = scaled("instance_norm", (batch, channels, *image), channels, epsilon=1e-2)
    assert_matches_reference(sample, batch=batch, loosely=10)


@drawn(7)
@given(st.data(), shapes(2, 2), SMALL, BATCHES, LAYOUTS)
def test_batch_norm(data, image, channels, batch, layout):
    shape = (batch, channels, *image) if layout == "NCHW" else (batch, *image, channels)
    flag = data.draw(st.sampled_from([{}, {"is_test": True}, {"use_global_stats": True}]))
    assert_matches_reference(
        normalisation(shape, channels, data_layout=layout, **flag), batch=batch, loosely=5
    )
