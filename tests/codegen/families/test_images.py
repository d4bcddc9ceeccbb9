"""Convolutions, pools and resampling: windows that hang over edges, groups, holes, layouts."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.codegen.families.support import BATCHES, assert_matches_reference, drawn
from tests.ops.samples.conv import convolution, stamping
from tests.ops.samples.pool import pooling, volumes
from tests.ops.samples.vision import resized

pytestmark = pytest.mark.device

SIDES = st.sampled_from([4, 5, 6, 7, 9, 10])
TAPS = st.integers(1, 3)
EDGES = st.integers(0, 2)


@st.composite
def geometry(draw, edges=EDGES):
    """Draw strides, paddings (one an axis, or one a side) and dilations of two axes."""
    pair = st.lists(st.integers(1, 2), min_size=2, max_size=2)
    sides = draw(st.sampled_from([2, 4]))
    paddings = draw(st.lists(edges, min_size=sides, max_size=sides))
    return {"strides": draw(pair), "paddings": paddings, "dilations": draw(pair)}


@drawn(6)
@given(st.data(), BATCHES, SIDES, SIDES, TAPS, TAPS, geometry())
def test_convolution(data, batch, height, width, down, across, attrs):
    groups, depth, filters = (data.draw(st.integers(1, 3)) for _ in range(3))
    span = [d * (n - 1) + 1 for d, n in zip(attrs["dilations"], (down, across), strict=True)]
    assume(span[0] <= height and span[1] <= width)
    images = (batch, groups * depth, height, width)
    sample = convolution(images, (groups * filters, depth, down, across), groups=groups, **attrs)
    assert_matches_reference(sample, batch=batch, loosely=5)


@drawn(3)
@given(st.data(), BATCHES, SIDES, SIDES, TAPS, TAPS, geometry(st.just(0)))
def test_transposed_convolution(data, batch, height, width, down, across, attrs):
    groups, depth, filters = (data.draw(st.integers(1, 3)) for _ in range(3))
    images = (batch, groups * depth, height, width)
    sample = stamping(images, (groups * depth, filters, down, across), groups=groups, **attrs)
    assert_matches_reference(sample, batch=batch, loosely=5)


@drawn(3)
@given(st.data(), BATCHES, SIDES, SIDES, TAPS, geometry())
def test_depthwise_convolution(data, batch, height, width, side, attrs):
    channels, times = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 2))
    assume(max(attrs["dilations"]) * (side - 1) + 1 <= min(height, width))
    images, filters = (batch, channels, height, width), (channels * times, 1, side, side)
    sample = convolution(images, filters, op="depthwise_conv2d", groups=channels, **attrs)
    assert_matches_reference(sample, batch=batch, loosely=5)


@drawn(8)
@given(st.data(), BATCHES, SIDES, SIDES, st.sampled_from(["max", "avg"]))
def test_pools(data, batch, height, width, kind):
    ksize = [data.draw(st.integers(1, 4)) for _ in range(2)]
    attrs = {
        "strides": [data.draw(st.integers(1, 3)) for _ in range(2)],
        "paddings": [data.draw(st.integers(0, (n - 1) // 2)) for n in ksize],
        "ceil_mode": data.draw(st.booleans()),
        "exclusive": data.draw(st.booleans()),
        "global_pooling": data.draw(st.integers(0, 5)) == 0,
    }
    layout = data.draw(st.sampled_from(["NCHW", "NHWC"]))
    images = (batch, 3, height, width) if layout == "NCHW" else (batch, height, width, 3)
    assert_matches_reference(pooling(images, kind, ksize, data_format=layout, **attrs), batch=batch)


@drawn(3)
@given(st.data(), BATCHES, SIDES, SIDES, st.sampled_from(["max", "avg"]))
def test_adaptive_pools(data, batch, height, width, kind):
    ksize = [data.draw(st.integers(1, size)) for size in (height, width)]
    assert_matches_reference(
        pooling((batch, 2, height, width), kind, ksize, adaptive=True), batch=batch
    )


@drawn(2)
@given(st.data(), st.sampled_from(["max", "avg"]))
def test_pools_of_volumes(data, kind):
    sizes = [data.draw(st.integers(3, 6)) for _ in range(3)]
    ksize = [data.draw(st.integers(1, 3)) for _ in range(3)]
    assert_matches_reference(volumes((2, 2, *sizes), kind, ksize, strides=[2, 1, 2]))


@drawn(8)
@given(st.data(), BATCHES, st.sampled_from(["linear", "bilinear", "nearest", "trilinear"]))
def test_resampling(data, batch, method):
    rank = {"linear": 1, "bilinear": 2, "nearest": 2, "trilinear": 3}[method]
    sizes = [data.draw(st.integers(1, 7)) for _ in range(rank)]
    wanted = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    attrs = {
        "align_corners": data.draw(st.booleans()),
        "align_mode": data.draw(st.integers(0, 1)),
    }
    suffix = data.draw(st.sampled_from(["", "_v2"]))
    sample = resized(f"{method}_interp{suffix}", (batch, 2, *sizes), wanted, **attrs)
    assert_matches_reference(sample, batch=batch, loosely=5)
