"""2-D and 3-D convolution, transposed convolution and deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fluid.framework import Variable
from fluid.initializer import Normal
from fluid.layer_helper import LayerHelper
from fluid.layers.images.windows import (
    Padding,
    channel_count,
    check_flag,
    is_channels_last,
    merge_equal_pairs,
    padding_attributes,
    padding_pairs,
    sizes_per_axis,
)
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import AttributeValue
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = ["conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "deformable_conv"]


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """2-D convolution of images [N, C, H, W] with filters [num_filters, C / groups, kh, kw].

    Padding is a number, [height, width], [top, bottom, left, right], "SAME" or "VALID". Raises
    ValueError where the channels are unknown or not divisible by `groups`.

    >>> import fluid
    >>> images = fluid.layers.data("conv2d_doc", [3, 8, 8])
    >>> fluid.layers.conv2d(images, num_filters=4, filter_size=3, act="relu").shape
    (-1, 4, 6, 6)
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    channels = channel_count(input, data_format, "conv2d")
    alone = channels == groups and num_filters % channels == 0 and not use_cudnn
    helper = LayerHelper(
        "depthwise_conv2d" if alone else "conv2d",
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
        use_cudnn=use_cudnn,
    )
    attrs = _attributes(2, stride, padding, dilation, groups, use_cudnn, data_format)
    attrs |= {"use_mkldnn": False, "fuse_relu_before_depthwise_conv": False}
    kernel_size = sizes_per_axis(filter_size, 2, "filter_size")
    return _append_convolution(helper, input, [num_filters, channels, *kernel_size], attrs)


def conv3d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """3-D convolution of volumes [N, C, D, H, W] with filters [num_filters, C / groups, kd, kh,
    kw].

    Padding is a number, one for each of depth, height and width, two for each, "SAME" or "VALID".
    Raises ValueError where the channels are unknown or not divisible by `groups`.

    >>> import fluid
    >>> volumes = fluid.layers.data("conv3d_doc", [3, 4, 8, 8])
    >>> fluid.layers.conv3d(volumes, num_filters=2, filter_size=3, padding="SAME").shape
    (-1, 2, 4, 8, 8)
    """
    check_variable(input, "input", "conv3d")
    channels = channel_count(input, data_format, "conv3d", 3)
    helper = LayerHelper(
        "conv3d",
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
        use_cudnn=use_cudnn,
    )
    attrs = _attributes(3, stride, padding, dilation, groups, use_cudnn, data_format)
    kernel_size = sizes_per_axis(filter_size, 3, "filter_size")
    shape = [num_filters, channels, *kernel_size]
    return _append_convolution(helper, input, shape, {**attrs, "use_mkldnn": False})


def _attributes(
    axes: int,
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int],
    groups: int | None,
    use_cudnn: bool,
    layout: str,
) -> dict[str, AttributeValue]:
    """Return the attributes common to all convolutions; ValueError for invalid values."""
    check_flag(use_cudnn, "use_cudnn", f"conv{axes}d")
    paddings, algorithm = padding_attributes(padding, layout, axes)
    return {
        "strides": sizes_per_axis(stride, axes, "stride"),
        "paddings": paddings,
        "dilations": sizes_per_axis(dilation, axes, "dilation"),
        "groups": groups,
        "use_cudnn": use_cudnn,
        "padding_algorithm": algorithm,
        "data_format": layout,
    }


def _append_convolution(
    helper: LayerHelper, input: Variable, shape: Sequence[int], attrs: dict[str, AttributeValue]
) -> Variable:
    """Append the convolution, bias and activation; `shape` is the filter shape without groups."""
    filters = _filters(helper, input, shape, attrs["groups"] or 1)
    inputs = {"Input": input, "Filter": filters}
    out = helper.append_result(helper.layer_type, inputs, attrs, slot="Output")
    return helper.append_activation(_append_bias(helper, out, attrs["data_format"]))


def _filters(helper: LayerHelper, input: Variable, shape: Sequence[int], groups: int) -> Variable:
    """Create the filter parameter, initialized from a variance-preserving normal distribution."""
    attr = helper.param_attr
    if attr is False:
        raise ValueError(f"{helper.layer_type} has filters: param_attr can not be False")
    count, channels, *kernel_size = shape
    if channels % groups:
        raise ValueError(
            f"the channels of the input of {helper.layer_type} must be divisible by groups, "
            f"but {input.name!r} has {channels} and groups is {groups}"
        )
    if min(kernel_size) < 1:
        raise ValueError(
            f"filter_size of {helper.layer_type} must be at least 1, not {kernel_size}"
        )
    deviation = math.sqrt(2.0 / (math.prod(kernel_size) * channels))
    return helper.create_parameter(
        attr,
        [count, channels // groups, *kernel_size],
        input.dtype,
        default_initializer=Normal(0.0, deviation),
    )


def _append_bias(helper: LayerHelper, out: Variable, layout: str) -> Variable:
    axis = len(out.shape) - 1 if is_channels_last(layout) else 1
    return helper.append_bias_op(out, axis, axis + 1)


# ---- transposed ---------------------------------------------------------------------------------


def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Padding = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """2-D transposed convolution of images [N, C, H, W] with `num_filters` output channels.

    The output size of an axis is (size - 1) * stride - paddings + dilation * (filter - 1) + 1;
    `output_size` may add up to stride - 1, or determines the filter size if `filter_size` is None.
    Raises ValueError if both are None.

    >>> import fluid
    >>> images = fluid.layers.data("transpose_doc", [3, 8, 8])
    >>> fluid.layers.conv2d_transpose(images, 2, filter_size=4, stride=2, padding=1).shape
    (-1, 2, 16, 16)
    """
    check_variable(input, "input", "conv2d_transpose")
    channels = channel_count(input, data_format, "conv2d_transpose")
    alone = channels == groups == num_filters and not use_cudnn
    helper = LayerHelper(
        "depthwise_conv2d_transpose" if alone else "conv2d_transpose",
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
        use_cudnn=use_cudnn,
    )
    sizes = (output_size, filter_size, padding, stride, dilation)
    kernel_size, attrs = _transposed_geometry(input, 2, sizes, use_cudnn, data_format)
    shape = [channels, num_filters, *kernel_size]
    return _append_transposed(helper, input, shape, {**attrs, "groups": groups or 1}, data_format)


def conv3d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Padding = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """3-D transposed convolution of volumes [N, C, D, H, W] with `num_filters` output channels.

    Sizes are as in `conv2d_transpose`, for three spatial axes.
    """
    check_variable(input, "input", "conv3d_transpose")
    channels = channel_count(input, data_format, "conv3d_transpose", 3)
    helper = LayerHelper(
        "conv3d_transpose",
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
        use_cudnn=use_cudnn,
    )
    sizes = (output_size, filter_size, padding, stride, dilation)
    kernel_size, attrs = _transposed_geometry(input, 3, sizes, use_cudnn, data_format)
    layout = data_format.replace("D", "")  # the name that the op expects
    attrs |= {"groups": groups or 1, "data_format": layout}
    return _append_transposed(
        helper, input, [channels, num_filters, *kernel_size], attrs, data_format
    )


def _transposed_geometry(
    input: Variable, axes: int, sizes: tuple[AttributeValue, ...], use_cudnn: bool, layout: str
) -> tuple[list[int], dict[str, AttributeValue]]:
    """Return the filter size and the attributes of a transposed convolution."""
    check_flag(use_cudnn, "use_cudnn", f"conv{axes}d_transpose")
    output_size, filter_size, padding, stride, dilation = sizes
    strides, dilations = (
        sizes_per_axis(value, axes, argument)
        for value, argument in ((stride, "stride"), (dilation, "dilation"))
    )
    wanted = [] if output_size is None else sizes_per_axis(output_size, axes, "output_size")
    pairs, algorithm = padding_pairs(padding, layout, axes)
    if filter_size is None:
        image = input.shape[1:-1] if is_channels_last(layout) else input.shape[2:]
        kernel_size = _infer_filter_size(image, wanted, pairs, strides, dilations)
    else:
        kernel_size = sizes_per_axis(filter_size, axes, "filter_size")
    return kernel_size, {
        "output_size": wanted,
        "strides": strides,
        "paddings": merge_equal_pairs(pairs),
        "padding_algorithm": algorithm,
        "dilations": dilations,
        "use_cudnn": use_cudnn,
        "data_format": layout,
    }


def _infer_filter_size(
    image: Sequence[int],
    wanted: Sequence[int],
    pairs: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """Infer the filter size from the output size; ValueError if the input size is dynamic."""
    if not wanted:
        raise ValueError("a transposed convolution needs a filter_size or an output_size")
    if min(image) < 0:
        raise ValueError(f"images of dynamic sizes {list(image)} need a filter_size")
    geometry = zip(image, wanted, pairs[::2], pairs[1::2], strides, dilations, strict=True)
    return [
        (size - (in_size - 1) * stride + before + after - 1) // rate + 1
        for in_size, size, before, after, stride, rate in geometry
    ]


def _append_transposed(
    helper: LayerHelper,
    input: Variable,
    shape: Sequence[int],
    attrs: dict[str, AttributeValue],
    layout: str,
) -> Variable:
    """Append the transposed convolution, bias and activation; `shape` is one group's filter
    shape.
    """
    attr = helper.param_attr
    if attr is False:
        raise ValueError(f"{helper.layer_type} has filters: param_attr can not be False")
    channels, count, *kernel_size = shape
    sizes = [channels, count // attrs["groups"], *kernel_size]
    filters = helper.create_parameter(attr, sizes, input.dtype)
    inputs = {"Input": input, "Filter": filters}
    out = helper.append_result(helper.layer_type, inputs, attrs, slot="Output")
    return helper.append_activation(_append_bias(helper, out, layout))


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Deformable 2-D convolution of images [N, C, H, W]: `offset` moves each sampling point.

    `offset` is [N, 2 * deformable_groups * kh * kw, H_out, W_out], (y, x) for each point. `mask`,
    with half as many channels, weights the samples if the convolution is `modulated`.
    """
    check_variable_and_dtype(input, "input", FLOATS[1:], "deformable_conv")
    check_variable_and_dtype(offset, "offset", FLOATS[1:], "deformable_conv")
    check_type(mask, "mask", (Variable, type(None)), "deformable_conv")
    channels = channel_count(input, "NCHW", "deformable_conv")
    helper = LayerHelper("deformable_conv", param_attr=param_attr, bias_attr=bias_attr, name=name)
    kernel_size = sizes_per_axis(filter_size, 2, "filter_size")
    filters = _filters(helper, input, [num_filters, channels, *kernel_size], groups or 1)
    attrs = {
        "strides": sizes_per_axis(stride, 2, "stride"),
        "paddings": sizes_per_axis(padding, 2, "padding"),
        "dilations": sizes_per_axis(dilation, 2, "dilation"),
        "groups": groups,
        "deformable_groups": deformable_groups,
        "im2col_step": im2col_step,
    }
    inputs = {"Input": input, "Filter": filters, "Offset": offset}
    inputs |= {"Mask": mask} if modulated else {}
    op_type = "deformable_conv" if modulated else "deformable_conv_v1"
    out = helper.append_result(op_type, inputs, attrs, slot="Output")
    return helper.append_bias_op(out, dim_start=1, dim_end=2)
