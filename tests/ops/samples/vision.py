"""Samples of ops that move, resample and crop images."""

import numpy as np

from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import lod


def resized(op, shape, sizes=(), **attrs):
    """Return a sample of resizing to these sizes, whatever their number."""
    names = ("out_d", "out_h", "out_w")[3 - len(sizes) :]
    method = op.removesuffix("_v2").removesuffix("_interp")
    inputs = {"interp_method": method, **dict(zip(names, sizes, strict=True)), **attrs}
    return Sample(op, {"X": numbers(*shape)}, inputs, ("X",))


def told(slot, value, op="bilinear_interp"):
    """A sample whose sizes are given by a tensor."""
    method = op.removesuffix("_v2").removesuffix("_interp")
    inputs = {"X": numbers(2, 2, 3, 4), slot: value}
    return Sample(op, inputs, {"interp_method": method, "align_corners": False}, ("X",))


SIZES = [np.array([size], np.int32) for size in (5, 2)]

SAMPLES = [
    sample
    for suffix in ("", "_v2")
    for corners in (True, False)
    for mode in (0, 1)
    for sample in (
        resized("linear_interp" + suffix, (2, 3, 4), (7,), align_corners=corners, align_mode=mode),
        resized(
            "bilinear_interp" + suffix, (2, 3, 4, 5), (7, 3), align_corners=corners, align_mode=mode
        ),
        resized(
            "trilinear_interp" + suffix,
            (2, 2, 3, 2, 3),
            (4, 3, 5),
            align_corners=corners,
            align_mode=mode,
        ),
    )
]

SAMPLES += [
    sample
    for suffix in ("", "_v2")
    for corners in (True, False)
    for sample in (
        resized("nearest_interp" + suffix, (2, 3, 4, 5), (7, 3), align_corners=corners),
        resized("bicubic_interp" + suffix, (2, 3, 4, 5), (7, 3), align_corners=corners),
    )
]

SAMPLES += [
    resized("bilinear_interp", (2, 4, 5, 3), (3, 8), align_corners=False, data_layout="NHWC"),
    resized("bilinear_interp", (2, 3, 4, 5), scale=1.5, align_corners=False),
    Sample(
        "bilinear_interp",
        {"X": np.array([[[[139, 172], [153, 20]]]], np.uint8)},
        {"out_h": 2, "out_w": 4},
    ),
    resized("nearest_interp", (2, 3, 4, 5), scale=2.0),
    resized("nearest_interp", (2, 3, 4, 5), (1, 1)),
    resized("bilinear_interp_v2", (2, 3, 4, 5), scale=[1.5, 0.7], align_corners=False),
    resized("nearest_interp_v2", (2, 3, 4, 5), scale=[1.5], align_corners=False),
    told("OutSize", np.array([5, 2], np.int32)),
    told("Scale", np.array([1.5], np.float32)),
    told("SizeTensor", SIZES),
    told("SizeTensor", SIZES, "nearest_interp_v2"),
    told("Scale", np.array([1.5, 0.7], np.float32), "bilinear_interp_v2"),
]

SAMPLES += [
    Sample("pixel_shuffle", {"X": numbers(2, 8, 3, 2)}, {"upscale_factor": 2}, ("X",)),
    Sample(
        "pixel_shuffle",
        {"X": numbers(2, 3, 2, 9)},
        {"upscale_factor": 3, "data_format": "NHWC"},
        ("X",),
    ),
    Sample("shuffle_channel", {"X": numbers(2, 9, 2, 3)}, {"group": 3}, ("X",)),
    Sample("shuffle_channel", {"X": numbers(2, 6, 2, 3)}, {"group": 2}),
    Sample("space_to_depth", {"X": numbers(2, 8, 4, 2)}, {"blocksize": 2}, ("X",)),
    Sample("temporal_shift", {"X": numbers(6, 8, 2, 3)}, {"seg_num": 3}, ("X",)),
    Sample(
        "temporal_shift", {"X": numbers(4, 5, 2, 1)}, {"seg_num": 2, "shift_ratio": 0.4}, ("X",)
    ),
]

UNIT = {"strides": [1, 1], "paddings": [0, 0, 0, 0], "dilations": [1, 1]}
REAL = np.array([[4, 5], [3, 4]], np.float32)

SAMPLES += [
    Sample("unfold", {"X": numbers(2, 3, 4, 5)}, {**UNIT, "kernel_sizes": [2, 3]}, ("X",)),
    Sample(
        "unfold",
        {"X": numbers(2, 2, 5, 6)},
        {
            "kernel_sizes": [3, 2],
            "strides": [2, 1],
            "paddings": [1, 0, 2, 1],
            "dilations": [1, 2],
        },
        ("X",),
    ),
    Sample("im2sequence", {"X": numbers(2, 3, 4, 5)}, {"kernels": [2, 3]}, ("X",)),
    Sample(
        "im2sequence",
        {"X": numbers(3, 2, 5, 6)},
        {"kernels": [3, 2], "strides": [2, 1], "paddings": [1, 0, 2, 1]},
        ("X",),
    ),
    Sample("im2sequence", {"X": numbers(2, 2, 4, 5), "Y": REAL}, {"kernels": [2, 2]}),
]

SAMPLES += [
    Sample("affine_grid", {"Theta": numbers(2, 2, 3)}, {"output_shape": [2, 1, 3, 4]}, ("Theta",)),
    Sample(
        "affine_grid",
        {"Theta": numbers(2, 2, 3), "OutputShape": np.array([2, 1, 2, 3], np.int32)},
        {"align_corners": False},
        ("Theta",),
    ),
    Sample(
        "grid_sampler",
        {"X": numbers(2, 3, 4, 5), "Grid": numbers(2, 3, 2, 2, low=-1.3, high=1.3, seed=1)},
        {},
        ("X", "Grid"),
    ),
    Sample(
        "grid_sampler",
        {"X": numbers(2, 3, 4, 5), "Grid": numbers(2, 4, 5, 2, seed=1)},
        {"align_corners": False},
        ("X", "Grid"),
    ),
    Sample("add_position_encoding", {"X": numbers(2, 4, 6)}, {"alpha": 0.7, "beta": 1.3}, ("X",)),
    Sample(
        "add_position_encoding",
        {"X": numbers(7, 2), "X_lod": lod((3, 4))},
        {"alpha": 0.7, "beta": 1.3},
        ("X",),
    ),
    Sample("similarity_focus", {"X": numbers(2, 3, 4, 5)}, {"axis": 1, "indexes": [0, 2]}),
    Sample("similarity_focus", {"X": numbers(2, 3, 4, 2)}, {"axis": 3, "indexes": [1]}),
    Sample("fsp", {"X": numbers(2, 3, 4, 2), "Y": numbers(2, 2, 4, 2, seed=1)}, {}, ("X", "Y")),
]
