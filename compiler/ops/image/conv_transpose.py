"""Transposed convolution: each input element adds its scaled filters to the output.

`conv2d_transpose`, `depthwise_conv2d_transpose` and `conv3d_transpose` are the image gradients of
the convolutions, and their own gradients are convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Types, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image import windows
from compiler.ops.image.conv_geometry import Windows
from compiler.ops.image.conv_kernels import channel_sums, convolve, filter_gradient, image_gradient
from compiler.ops.image.conv_numpy import (
    Axes,
    convolution,
    convolution_filter_gradient,
    convolution_image_gradient,
)
from compiler.ops.image.windows import (
    Axis,
    Sliding,
    axis_padding,
    channels_first,
    to_layout,
    view_channels_first,
    window_axis,
)
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown


def transposed_size(
    size: Any, taps: Any, stride: int, dilation: int, padding: tuple[int, int], algorithm: str
) -> tuple[Any, Any, int]:
    """Return the minimum output size on an axis, the padding before it, and the dilation."""
    before, after, dilation, _ = window_axis(
        size, taps, stride, dilation, padding, algorithm, False
    )
    span = dilation * (taps - 1) + 1
    return (size - 1) * stride - before - after + span, before, dilation


def transposed_axes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    algorithm: str,
    output_size: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[Axes, list[int]]:
    """Return the axes of the convolution that maps output to input, and the sizes of the output."""
    axes: Axes = []
    sizes_out: list[int] = []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        padding, stride = axis_padding(paddings, axis, len(sizes)), strides[axis]
        arguments = (size, taps, stride, dilations[axis], padding, algorithm)
        least, before, dilation = transposed_size(*arguments)
        sizes_out.append(
            output_size[axis] if output_size else least + sum(output_padding[axis:][:1])
        )
        whole = (size - 1) * stride + dilation * (taps - 1) + 1
        axes.append(
            (taps, stride, dilation, before, max(whole - before - sizes_out[axis], 0), size)
        )
    return axes, sizes_out


class ConvTranspose(OpDef):
    """Output[n, f, s·y + d·i - p] = Σ Filter[c, f, i] Input[n, c, y], summed over c, y and i.

    Input is [N, C, …] (or [N, …, C], see data_format), Filter [C, F/groups, …] in either case.
    An axis of Output has size (size - 1)*stride - paddings + dilation*(taps - 1) + 1 plus
    `output_padding`, or else `output_size`, which may exceed the minimum by up to stride - 1. SAME
    pads as for a convolution of Input, as the reference does. Reference: conv_transpose_op.cc.
    """

    image_axes: ClassVar[int] = 2
    prefers_channels_last = True
    epilogue = "Output"
    epilogue_grad = "Input"

    Input = reads()
    Filter = reads()
    Output = writes(shares_lod=False)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    output_size = attr_list(int)
    output_padding = attr_list(int)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW")

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return windows.permuted_layout("data_format", self.data_format, order, "Input", "Output")

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Number of multiplications that compute Output, given the shapes of Input and Filter."""
        return product(shapes["Input"]) * product(shapes["Filter"][1:])

    def output(self, Input: TensorType, Filter: TensorType) -> TensorType:
        """Return the type of Output; raises ShapeError for incompatible Input and Filter."""
        windows.require_images(self.kind, "Input", Input, self.image_axes + 2)
        windows.require_filters(self.kind, Filter, self.image_axes + 2)
        require_same_dtype(self.kind, Input=Input, Filter=Filter)
        batch, channels, *sizes = windows.channels_first(self.data_format, Input.shape)
        odd = isinstance(channels, int) and channels % self.groups
        if odd or differ(channels, Filter.shape[0]):
            shapes = shown(Input=Input, Filter=Filter)
            raise ShapeError(
                f"{self.kind}: {shapes} do not fit in {self.groups} groups: {channels} channels"
            )
        sizes = self.output_sizes(sizes, Filter.shape[2:])
        shape = (batch, Filter.shape[1] * self.groups, *sizes)
        return Input.with_shape(windows.in_layout(self.data_format, shape))

    def output_sizes(self, sizes: Sequence[Size], kernel: Sequence[Size]) -> list[Size]:
        """Return the sizes of the output; raises ShapeError if `output_size` is out of range."""
        self.check()
        least_sizes = [
            self.least(axis, sizes[axis], kernel[axis]) for axis in range(self.image_axes)
        ]
        if not self.output_size:
            extra = self.output_padding or [0] * self.image_axes
            return [size + more for size, more in zip(least_sizes, extra, strict=True)]
        for least, options, stride in zip(least_sizes, self.output_size, self.strides, strict=True):
            if isinstance(least, int) and not least <= options < least + stride:
                raise ShapeError(
                    f"{self.kind}: output_size is {self.output_size}, "
                    f"expected {least} to {least + stride - 1} instead of {options}"
                )
        return [*self.output_size]

    def check(self) -> None:
        """Raise BadAttribute if a list of sizes has the wrong length."""
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        Sliding(self.kind, *sliding, axes=self.image_axes)
        for name in ("output_size", "output_padding"):
            values = self.attributes[name]
            if len(values) not in (0, self.image_axes):
                options = f"expected {self.image_axes} sizes or none"
                raise BadAttribute(f"{self.kind}: {name} is {values}, {options}")

    def least(self, axis: int, size: Size, kernel: Size) -> Size:
        """Return the minimum output size on an axis."""
        padding = axis_padding(self.paddings, axis, self.image_axes)
        sliding = (self.strides[axis], self.dilations[axis], padding, self.padding_algorithm)
        return transposed_size(size, kernel, *sliding)[0]

    def gradients(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Filter: DeviceOperand,
        d_Output: DeviceOperand,
        d_Input: DeviceOperand | None,
        d_Filter: DeviceOperand | None,
    ) -> None:
        """Emit the kernels of the requested gradients."""
        g = self.windows(Input, Filter, d_Output)
        if d_Input is not None:
            convolve(k, g, d_Output, Filter, d_Input)
        if d_Filter is not None:
            filter_gradient(k, g, d_Output, Input, d_Filter)

    def windows(
        self, Input: DeviceOperand, Filter: DeviceOperand, Output: DeviceOperand
    ) -> Windows:
        """Return the geometry of the convolution from Output to Input that this op transposes."""
        counts, sizes = (
            channels_first(self.data_format, tensor_type.shape)[2:]
            for tensor_type in (Input, Output)
        )
        axes: list[Axis] = []
        for axis, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            taps, stride = Filter.shape[2 + axis], self.strides[axis]
            padding = axis_padding(self.paddings, axis, self.image_axes)
            arguments = (stride, self.dilations[axis], padding, self.padding_algorithm)
            _, before, dilation = transposed_size(count, taps, *arguments)
            after = (count - 1) * stride + dilation * (taps - 1) + 1 - before - size
            axes.append(Axis(size, taps, stride, dilation, before, after, count))
        return Windows(self.data_format, self.groups, tuple(axes))


class Conv2dTranspose(ConvTranspose, op="conv2d_transpose"):
    """Transposed convolution of 2-D images, with an optional Bias [F]."""

    Bias = reads(optional=True)
    is_test = attr(False)

    def infer(self, Input: TensorType, Filter: TensorType, Bias: TensorType | None) -> TensorType:
        result = self.output(Input, Filter)
        if Bias is not None:
            filters = windows.channels_first(self.data_format, result.shape)[1:2]
            require_same_shape(self.kind, Bias=Bias, Filters=Bias.with_shape(filters))
        return result

    def numpy(self, Input: Array, Filter: Array, Bias: Array | None) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        options = (*sliding, self.output_size, self.output_padding)
        axes, sizes = transposed_axes(images.shape[2:], Filter.shape[2:], *options)
        output = convolution_image_gradient(images, Filter, axes, self.groups, sizes)
        return to_layout(self.data_format, output if Bias is None else output + Bias[:, None, None])

    def grad(
        self, Input: Array, Filter: Array, Bias: Array | None, d_Output: Array
    ) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        axes, _ = transposed_axes(
            images.shape[2:], Filter.shape[2:], *sliding, upstream.shape[2:], []
        )
        d_images = to_layout(self.data_format, convolution(upstream, Filter, axes, self.groups))
        d_filters = convolution_filter_gradient(upstream, images, axes, self.groups)
        gradients = {"Input": d_images, "Filter": d_filters}
        return gradients if Bias is None else {**gradients, "Bias": upstream.sum(axis=(0, 2, 3))}

    def kernel(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Filter: DeviceOperand,
        Bias: DeviceOperand | None,
        Output: DeviceOperand,
    ) -> None:
        image_gradient(k, self.windows(Input, Filter, Output), Input, Filter, Output, Bias)

    def kernel_grad(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Filter: DeviceOperand,
        d_Output: DeviceOperand,
        d_Input: DeviceOperand | None,
        d_Filter: DeviceOperand | None,
        d_Bias: DeviceOperand | None,
    ) -> None:
        self.gradients(k, Input, Filter, d_Output, d_Input, d_Filter)
        if d_Bias is not None:
            channel_sums(k, self.data_format, d_Output, d_Bias)


class DepthwiseConv2dTranspose(Conv2dTranspose, op="depthwise_conv2d_transpose"):
    """`conv2d_transpose` in which each channel is a group."""


class Conv3dTranspose(ConvTranspose, op="conv3d_transpose"):
    """Transposed convolution of volumes [N, C, D, H, W] (or NDHWC)."""

    image_axes = 3
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
    dilations = attr([1, 1, 1])

    def infer(self, Input: TensorType, Filter: TensorType) -> TensorType:
        return self.output(Input, Filter)

    def kernel(
        self, k: KernelBuilder, Input: DeviceOperand, Filter: DeviceOperand, Output: DeviceOperand
    ) -> None:
        image_gradient(k, self.windows(Input, Filter, Output), Input, Filter, Output)

    def kernel_grad(
        self,
        k: KernelBuilder,
        Input: DeviceOperand,
        Filter: DeviceOperand,
        d_Output: DeviceOperand,
        d_Input: DeviceOperand | None,
        d_Filter: DeviceOperand | None,
    ) -> None:
        self.gradients(k, Input, Filter, d_Output, d_Input, d_Filter)

    def numpy(self, Input: Array, Filter: Array) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        options = (*sliding, self.output_size, self.output_padding)
        axes, sizes = transposed_axes(images.shape[2:], Filter.shape[2:], *options)
        output = convolution_image_gradient(images, Filter, axes, self.groups, sizes)
        return to_layout(self.data_format, output)

    def grad(self, Input: Array, Filter: Array, d_Output: Array) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        axes, _ = transposed_axes(
            images.shape[2:], Filter.shape[2:], *sliding, upstream.shape[2:], []
        )
        d_images = to_layout(self.data_format, convolution(upstream, Filter, axes, self.groups))
        return {
            "Input": d_images,
            "Filter": convolution_filter_gradient(upstream, images, axes, self.groups),
        }
