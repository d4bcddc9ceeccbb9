"""Layers that pool or sample regions of interest to outputs of a fixed size.

Boxes `rois` are [R, 4], (x1, y1, x2, y2), one LoD sequence per image.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.images.windows import sizes_per_axis
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = [
    "deformable_roi_pooling",
    "prroi_pool",
    "psroi_pool",
    "roi_align",
    "roi_perspective_transform",
    "roi_pool",
]

_FULL_PRECISION = FLOATS[1:]
_ONE_GROUP = [1, 1]
"""Default value in the signature."""


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """Max pooling over a grid of cells in each box: [R, C, pooled_height, pooled_width].

    `rois_lod` is an optional tensor with the offsets of each image's boxes (LoD offsets).

    >>> import fluid
    >>> images = fluid.layers.data("roi_pool_doc", [8, 16, 16])
    >>> rois = fluid.layers.data("roi_pool_boxes", [4], lod_level=1)
    >>> fluid.layers.roi_pool(images, rois, 2, 3, spatial_scale=0.25).shape
    (-1, 8, 2, 3)
    """
    check_variable(input, "input", "roi_pool")
    helper = LayerHelper("roi_pool")
    out = helper.create_variable_for_type_inference(input.dtype)
    argmax = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        "roi_pool",
        inputs={"X": input, "ROIs": rois, "RoisLod": rois_lod},
        outputs={"Out": out, "Argmax": argmax},
        attrs=_cells(pooled_height, pooled_width, spatial_scale),
    )
    return out


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average bilinear samples in a grid of cells per box: [R, C, pooled_height, pooled_width].

    A cell has `sampling_ratio` times `sampling_ratio` samples; if it is not positive, the number
    depends on the cell size.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "roi_align")
    check_variable_and_dtype(rois, "rois", _FULL_PRECISION, "roi_align")
    attrs = _cells(pooled_height, pooled_width, spatial_scale)
    inputs = {"X": input, "ROIs": rois, "RoisLod": rois_lod}
    attrs["sampling_ratio"] = sampling_ratio
    return append_simple_op("roi_align", inputs, attrs, name=name)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Position-sensitive average pooling: each cell of a box reads different channels.

    `input` has output_channels * pooled_height * pooled_width channels; the result is [R,
    output_channels, pooled_height, pooled_width].
    """
    check_type(output_channels, "output_channels", int, "psroi_pool")
    attrs = _checked_cells("psroi_pool", pooled_height, pooled_width, spatial_scale)
    attrs["output_channels"] = output_channels
    return append_simple_op("psroi_pool", {"X": input, "ROIs": rois}, attrs, name=name)


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Precise RoI pooling: the exact integral mean of each cell, differentiable in the boxes.

    `batch_roi_nums` is an optional tensor with the number of boxes of each image.
    """
    attrs = _checked_cells("prroi_pool", pooled_height, pooled_width, spatial_scale)
    inputs = {"X": input, "ROIs": rois, "BatchRoINums": batch_roi_nums}
    return append_simple_op("prroi_pool", inputs, attrs, name=name)


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Warp quadrilaterals to upright rectangles; return the result, its mask and the transforms.

    The result is [R, C, height, width]. `rois` [R, 8] are four corners (x, y), clockwise from the
    top left. The mask, int32 [R, 1, height, width], is 1 inside; each row of the matrix [R, 9] maps
    output to `input` coordinates.
    """
    op = "roi_perspective_transform"
    check_variable_and_dtype(input, "input", ["float32"], op)
    check_variable_and_dtype(rois, "rois", ["float32"], op)
    check_type(transformed_height, "transformed_height", int, op)
    check_type(transformed_width, "transformed_width", int, op)
    check_type(spatial_scale, "spatial_scale", float, op)
    helper = LayerHelper(op, name=name)
    slots = {"Out": input.dtype, "Mask": "int32", "TransformMatrix": input.dtype}
    slots |= {"Out2InIdx": "int32", "Out2InWeights": input.dtype}
    outputs = {slot: helper.create_variable_for_type_inference(of) for slot, of in slots.items()}
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    helper.append_op(op, inputs={"X": input, "ROIs": rois}, outputs=outputs, attrs=attrs)
    return outputs["Out"], outputs["Mask"], outputs["TransformMatrix"]


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[int] = _ONE_GROUP,
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Sequence[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Deformable RoI pooling: the mean of samples in each cell, every part moved by its offset.

    `trans`, of shape `[R, 2, *part_size]`, has the offsets, scaled by `trans_std` and the box
    size; `no_trans` ignores them. With `position_sensitive` each cell reads different channels.
    """
    op = "deformable_roi_pooling"
    for value, label in ((input, "input"), (rois, "rois"), (trans, "trans")):
        check_variable_and_dtype(value, label, _FULL_PRECISION, op)
    check_type(group_size, "group_size", (list, tuple), op)
    parts = [pooled_height, pooled_width] if part_size is None else part_size
    cells = pooled_height * pooled_width if position_sensitive else 1
    helper = LayerHelper("deformable_psroi_pooling", name=name)
    out = helper.create_variable_for_type_inference(input.dtype)
    counts = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        "deformable_psroi_pooling",
        inputs={"Input": input, "ROIs": rois, "Trans": trans},
        outputs={"Output": out, "TopCount": counts},
        attrs={
            **_cells(pooled_height, pooled_width, spatial_scale),
            "no_trans": no_trans,
            "output_dim": input.shape[1] // cells,
            "group_size": sizes_per_axis(group_size, 2, "group_size"),
            "part_size": sizes_per_axis(parts, 2, "part_size"),
            "sample_per_part": sample_per_part,
            "trans_std": trans_std,
        },
    )
    return out


def _cells(height: int, width: int, scale: float) -> dict[str, object]:
    return {"pooled_height": height, "pooled_width": width, "spatial_scale": scale}


def _checked_cells(op: str, height: int, width: int, scale: float) -> dict[str, object]:
    check_type(scale, "spatial_scale", float, op)
    check_type(height, "pooled_height", int, op)
    check_type(width, "pooled_width", int, op)
    return _cells(height, width, scale)
