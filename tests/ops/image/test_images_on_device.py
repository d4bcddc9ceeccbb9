"""Kernels of image ops beyond the samples: sizes that fill no tile, boxes of any size.

Also invalid data: nothing is read or written out of bounds.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime
from compiler.freeze import freeze
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import lod
from tests.ops.test_generated import NOBODY, Case, backward, forward, graph_of
from tests.ops.test_on_device import DEVICE, TARGET

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

WIDE = np.array([[-9, -7, 60, 44], [3.5, 2.25, 41.5, 30.75], [80, 2, 90, 9]], np.float32)
"""Boxes: around the whole picture, across most of it, and beside it."""

CELLS = {"spatial_scale": 1.0, "pooled_height": 2, "pooled_width": 3}


def boxed(op, channels, **attrs):
    """Boxes of two images whose cells have hundreds of elements."""
    inputs = {"X": numbers(2, channels, 37, 51), "ROIs": WIDE, "ROIs_lod": lod((1, 2))}
    return Sample(op, inputs, {**CELLS, **attrs}, ("X",))


def sheared(groups, parts):
    """A deformable convolution of 70 windows, with channels for no whole tile."""
    inputs = {
        "Input": numbers(2, 6, 7, 12),
        "Offset": numbers(2, parts * 18, 5, 7, low=-3.0, high=3.0, seed=1),
        "Mask": numbers(2, parts * 9, 5, 7, low=0.1, seed=2),
        "Filter": numbers(10, 6 // groups, 3, 3, seed=3),
    }
    attrs = {"strides": [1, 2], "paddings": [0, 2], "dilations": [1, 1]}
    attrs |= {"groups": groups, "deformable_groups": parts}
    return Sample("deformable_conv", inputs, attrs, ("Input", "Offset", "Mask", "Filter"))


LARGE = [
    boxed("roi_pool", 3),
    boxed("roi_align", 3),
    boxed("roi_align", 3, sampling_ratio=3),
    boxed("psroi_pool", 12, output_channels=2),
    boxed("prroi_pool", 3),
    sheared(1, 1),
    sheared(2, 3),
    Sample(
        "grid_sampler",
        {"X": numbers(2, 3, 9, 31), "Grid": numbers(2, 23, 17, 2, low=-1.4, high=1.4, seed=1)},
        {},
        ("X", "Grid"),
    ),
    Sample(
        "spectral_norm",
        {"Weight": numbers(33, 5, 9), "U": numbers(33, seed=1), "V": numbers(45, seed=2)},
        {"power_iters": 3},
        ("Weight",),
    ),
    Sample("spp", {"X": numbers(2, 3, 37, 29)}, {"pyramid_height": 3, "pooling_type": "max"}, ("X",)),
    Sample("spp", {"X": numbers(2, 3, 37, 29)}, {"pyramid_height": 3, "pooling_type": "avg"}, ("X",)),
]  # fmt: skip


@pytest.mark.parametrize("sample", LARGE, ids=lambda sample: sample.op)
@pytest.mark.parametrize("make", [forward, backward])
def test_large_ones(make, sample):
    case = make(sample)
    assert DEVICE.has_kernels(case)
    DEVICE.run(case, NOBODY, steps=1)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["nearest_interp", "bilinear_interp", "bicubic_interp"]),
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
    st.sampled_from([(True, 1), (False, 0), (False, 1)]),
)
def test_images_of_any_size_are_resized_to_any_other(op, sizes, how):
    height, width, rows, columns = sizes
    attrs = {"out_h": rows, "out_w": columns, "align_corners": how[0], "align_mode": how[1]}
    sample = Sample(op, {"X": numbers(2, 2, height, width)}, attrs, ("X",))
    for case in (forward(sample), backward(sample)):
        DEVICE.run(case, NOBODY, steps=1)


# ---- data that is wrong --------------------------------------------------------------------------


def made(op, attrs, values, **shapes):
    """What the kernels of a call give for the outputs of these shapes."""
    results = {slot: np.zeros(shape, np.float32) for slot, shape in shapes.items()}
    graph, feed = graph_of(Case(op, attrs, values, results), list(shapes), NOBODY)
    assert not any(TARGET.supports(op) for op in graph.ops())
    run_passes(graph, pipeline(Options(), TARGET), Context())
    return runtime.load(TARGET.emit(freeze(graph)), runtime.CUDAPlace(0))(feed)


def test_scatter_outside_an_image_is_dropped():
    places = np.array([0, -1, 15, 16, 2**30, 3, 5, 7, 9], np.int32).reshape(1, 1, 3, 3)
    attrs = {"ksize": [2, 2], "strides": [1, 1], "paddings": [0, 0], "unpooling_type": "max"}
    (out,) = made("unpool", attrs, {"X": numbers(1, 1, 3, 3), "Indices": places}, Out=(1, 1, 4, 4))
    filled = np.flatnonzero(out)
    assert filled.tolist() == [0, 3, 5, 7, 9, 15]


def test_grids_that_look_far_away_see_nothing():
    grid = np.array([[1e30, 0], [0, -1e30], [np.nan, 0], [0, 0]], np.float32).reshape(1, 2, 2, 2)
    (out,) = made("grid_sampler", {}, {"X": numbers(1, 1, 3, 3), "Grid": grid}, Output=(1, 1, 2, 2))
    assert out.ravel()[:2].tolist() == [0, 0] and np.isnan(out.ravel()[2])
    assert out.ravel()[3] == numbers(1, 1, 3, 3)[0, 0, 1, 1]


def test_invalid_labels_have_nan_loss():
    labels = np.array([1, 7, -3, 0])
    values = {"X": numbers(4, 3), "Label": labels}
    out, _ = made("nll_loss", {"reduction": "none"}, values, Out=(4,), Total_weight=(1,))
    assert np.isnan(out).tolist() == [False, True, True, False]
    assert out[0] == -values["X"][0, 1]
    tree = {"X": numbers(4, 5), "W": numbers(2, 5, seed=1), "Label": labels[:, None]}
    out, _ = made("hierarchical_sigmoid", {"num_classes": 3}, tree, Out=(4, 1), PreOut=(4, 2))
    assert np.isnan(out[:, 0]).tolist() == [False, True, True, False]


def test_nan_boxes_read_nothing_outside():
    boxes = np.array([[np.nan, 0, 4, 4], [0, 0, np.inf, 4], [-1e30, -1e30, 1e30, 1e30]], np.float32)
    values = {"X": numbers(1, 2, 5, 7), "ROIs": boxes}
    for op in ("roi_pool", "psroi_pool"):
        channels = {"psroi_pool": {"output_channels": 2}}.get(op, {})
        x = numbers(1, 12 if channels else 2, 5, 7)
        (out,) = made(op, {**CELLS, **channels}, {**values, "X": x}, Out=(3, 2, 2, 3))
        assert np.abs(np.nan_to_num(out)).max() <= np.abs(x).max()
