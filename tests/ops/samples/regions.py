"""Samples of regions of interest: small, large, over the edge, and none at all."""

import numpy as np

from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import lod

BOXES = np.array(
    [[1.3, 0.7, 9.1, 8.3], [4.2, 6.1, 12.9, 7.7], [-3.1, 2.2, 5.3, 19.4], [6.4, 6.6, 6.9, 7.1]],
    np.float32,
)
CELLS = {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 3}


def boxed(op, channels=2, grads=("X",), offsets="", **attrs):
    """A sample of four boxes in two images, three of them in the second."""
    inputs = {"X": numbers(2, channels, 5, 7), "ROIs": BOXES}
    inputs |= {"RoisLod": np.array([0, 1, 4])} if offsets else {"ROIs_lod": lod((1, 3))}
    return Sample(op, inputs, {**CELLS, **attrs}, grads)


def moved(classes, no_trans=False):
    """Return a sample of cells that are moved, two groups of channels for 2x2 of them."""
    inputs = {
        "Input": numbers(2, 8, 5, 7),
        "ROIs": BOXES[:3],
        "ROIs_lod": lod((1, 2)),
        "Trans": numbers(3, 2 * classes, 2, 2, seed=1),
    }
    attrs = {
        **CELLS,
        "pooled_width": 2,
        "no_trans": no_trans,
        "output_dim": 2,
        "group_size": [2, 2],
        "part_size": [2, 2],
        "sample_per_part": 2,
        "trans_std": 0.1,
    }
    grads = ("Input",) if no_trans else ("Input", "Trans")
    return Sample("deformable_psroi_pooling", inputs, attrs, grads)


SAMPLES = [
    boxed("roi_pool"),
    boxed("roi_pool", offsets="told"),
    boxed("roi_align"),
    boxed("roi_align", sampling_ratio=2, offsets="told"),
    boxed("psroi_pool", 12, output_channels=2),
    boxed("prroi_pool", grads=("X", "ROIs")),
    Sample(
        "prroi_pool",
        {"X": numbers(2, 2, 5, 7), "ROIs": BOXES, "BatchRoINums": np.array([1, 3])},
        CELLS,
        ("X", "ROIs"),
    ),
    moved(1),
    moved(2),
    moved(1, no_trans=True),
]

CORNERS = np.array(
    [[4, 4, 18, 2, 20, 14, 2, 16], [0, 0, 12, 0, 12, 10, 0, 10], [10, 2, 18, 8, 12, 16, 4, 10]],
    np.float32,
) + np.float32(0.37)
"""No position that is drawn lies on a whole number, where its elements depend on rounding."""

SAMPLES += [
    Sample(
        "roi_perspective_transform",
        {"X": numbers(2, 2, 9, 11), "ROIs": CORNERS, "ROIs_lod": lod((1, 2))},
        {"spatial_scale": 0.5, "transformed_height": 4, "transformed_width": 5},
        ("X",),
    ),
]
