"""Layers that rearrange pixels, extract windows and sample images."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.images.windows import sizes_per_axis
from fluid.recording.checks import (
    FLOATS,
    SizesError,
    check_type,
    check_variable,
    check_variable_and_dtype,
)

__all__ = [
    "add_position_encoding",
    "affine_grid",
    "fsp_matrix",
    "grid_sampler",
    "im2sequence",
    "pixel_shuffle",
    "shuffle_channel",
    "similarity_focus",
    "space_to_depth",
    "temporal_shift",
    "unfold",
]

_FULL_PRECISION = FLOATS[1:]


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Rearrange images [N, C·r², H, W] to [N, C, H·r, W·r], r the `upscale_factor`.

    >>> import fluid
    >>> images = fluid.layers.data("pixel_shuffle_doc", [8, 3, 3])
    >>> fluid.layers.pixel_shuffle(images, 2).shape
    (-1, 2, 6, 6)
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "pixel_shuffle")
    check_type(upscale_factor, "upscale_factor", int, "pixel_shuffle")
    return append_simple_op("pixel_shuffle", {"X": x}, {"upscale_factor": upscale_factor})


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Shuffle channels: interleave those of the `group` groups."""
    check_variable(x, "x", "shuffle_channel")
    check_type(group, "group", int, "shuffle_channel")
    return append_simple_op("shuffle_channel", {"X": x}, {"group": group}, name=name)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Move blocks of pixels to channels: [N, C, H, W] to [N, C·b², H/b, W/b]; b² must divide C."""
    if not isinstance(blocksize, int):  # pyright: ignore[reportUnnecessaryIsInstance] - 2.0
        raise ValueError(f"blocksize of space_to_depth must be an int, not {blocksize!r}")
    check_variable_and_dtype(x, "x", (*FLOATS, "int32", "int64"), "space_to_depth")
    return append_simple_op("space_to_depth", {"X": x}, {"blocksize": blocksize}, name=name)


def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Shift some channels of frames [N·seg_num, C, H, W] by one frame in time.

    A fraction `shift_ratio` of the channels is shifted in each direction.
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "temporal_shift")
    check_type(seg_num, "seg_num", int, "temporal_shift")
    check_type(shift_ratio, "shift_ratio", float, "temporal_shift")
    attrs = {"seg_num": seg_num, "shift_ratio": shift_ratio}
    return append_simple_op("temporal_shift", {"X": x}, attrs, name=name)


# ---- windows ------------------------------------------------------------------------------------


def unfold(
    x: Variable,
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """Extract sliding windows of images [N, C, H, W] (im2col): [N, C·kernel, windows].

    Paddings are a number, [height, width] or [top, left, bottom, right]; ValueError for others.

    >>> import fluid
    >>> images = fluid.layers.data("unfold_doc", [3, 5, 6])
    >>> fluid.layers.unfold(images, [2, 3]).shape
    (-1, 18, 16)
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "unfold")
    if len(x.shape) != 4:
        raise SizesError(f"unfold takes images [N, C, H, W], but {x.name!r} is {list(x.shape)}")
    edges = [paddings] * 4 if isinstance(paddings, int) else list(paddings)
    edges = edges * 2 if len(edges) == 2 else edges
    if len(edges) != 4:
        raise ValueError(f"paddings of unfold must be one, 2 or 4 numbers, not {paddings!r}")
    attrs = {
        "kernel_sizes": sizes_per_axis(kernel_sizes, 2, "kernel_sizes"),
        "strides": sizes_per_axis(strides, 2, "strides"),
        "paddings": edges,
        "dilations": sizes_per_axis(dilations, 2, "dilations"),
    }
    return LayerHelper("unfold", name=name).append_result("unfold", {"X": x}, attrs, slot="Y")


def im2sequence(
    input: Variable,
    filter_size: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    input_image_size: Variable | None = None,
    out_stride: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """Extract windows of images [N, C, H, W] as sequences in row order: [windows, C·filter].

    Paddings are a number, [height, width] or [top, left, bottom, right]. With `input_image_size`
    [N, 2] only windows within that size, divided by `out_stride`, are used for each image.
    """
    check_variable_and_dtype(input, "input", ["float32"], "im2sequence")
    edges = [padding] * 2 if isinstance(padding, int) else list(padding)
    attrs: dict[str, object] = {
        "kernels": sizes_per_axis(filter_size, 2, "filter_size"),
        "strides": sizes_per_axis(stride, 2, "stride"),
        "paddings": edges * 2 if len(edges) == 2 else edges,
    }
    inputs = {"X": input}
    if input_image_size is not None:
        check_variable(input_image_size, "input_image_size", "im2sequence")
        inputs["Y"] = input_image_size
        attrs["out_stride"] = sizes_per_axis(out_stride, 2, "out_stride")
    return append_simple_op("im2sequence", inputs, attrs, name=name)


# ---- grids --------------------------------------------------------------------------------------


def affine_grid(
    theta: Variable, out_shape: Sequence[int] | Variable, name: str | None = None
) -> Variable:
    """Return the sampling grid [N, H, W, 2] of affine transforms `theta` [N, 2, 3].

    `out_shape` is [N, C, H, W]. Coordinates are in [-1, 1], x first. Raises ValueError for another
    type of `out_shape`.
    """
    check_variable_and_dtype(theta, "theta", _FULL_PRECISION, "affine_grid")
    helper = LayerHelper("affine_grid")
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ["int32"], "affine_grid")
        inputs = {"Theta": theta, "OutputShape": out_shape}
        return helper.append_result("affine_grid", inputs, slot="Output")
    if not isinstance(out_shape, list | tuple):
        raise ValueError("out_shape of affine_grid must be a list, a tuple or a Variable")
    attrs = {"output_shape": list(out_shape)}
    return helper.append_result("affine_grid", {"Theta": theta}, attrs, slot="Output")


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Sample images [N, C, H, W] at `grid` [N, h, w, 2], coordinates in [-1, 1], x first."""
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "grid_sampler")
    check_variable_and_dtype(grid, "grid", _FULL_PRECISION, "grid_sampler")
    helper = LayerHelper("grid_sampler", name=name)
    return helper.append_result("grid_sampler", {"X": x, "Grid": grid}, slot="Output")


# ---- others -------------------------------------------------------------------------------------


def similarity_focus(
    input: Variable, axis: int, indexes: Sequence[int], name: str | None = None
) -> Variable:
    """Return 1 where a chosen slice along `axis` is maximal in its row and column, else 0.

    `input` has rank 4, and `axis` is 1, 2 or 3. Raises ValueError for others, or without `indexes`.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "similarity_focus")
    check_type(axis, "axis", int, "similarity_focus")
    check_type(indexes, "indexes", list, "similarity_focus")
    if axis not in (1, 2, 3):
        raise ValueError(f"axis of similarity_focus must be 1, 2 or 3, not {axis}")
    if not indexes:
        raise ValueError("similarity_focus needs indexes")
    attrs = {"axis": axis, "indexes": indexes}
    return append_simple_op("similarity_focus", {"X": input}, attrs, name=name)


def add_position_encoding(
    input: Variable, alpha: float, beta: float, name: str | None = None
) -> Variable:
    """Return `alpha * input + beta * encoding`, the sinusoidal position encoding of the
    Transformer.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "add_position_encoding")
    attrs = {"alpha": alpha, "beta": beta}
    return append_simple_op("add_position_encoding", {"X": input}, attrs, name=name)


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Mean over pixels of the product of each channel of x with each of y: [N, Cx, Cy]."""
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "fsp_matrix")
    check_variable_and_dtype(y, "y", _FULL_PRECISION, "fsp_matrix")
    return LayerHelper("fsp_matrix").append_result("fsp", {"X": x, "Y": y})
