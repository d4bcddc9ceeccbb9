"""Transposed convolution: each input element adds its scaled filters to the output.

`conv2d_transpose`, `depthwise_conv2d_transpose` and `conv3d_transpose` are the image gradients of
the convolutions, and their own gradients are convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, overload

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, Types, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, Shape, TensorType
from compiler.ir.windows import ConvGeometry, KnownWindow, Window
from compiler.ops.image.conv_kernels import channel_sums, convolve, filter_gradient, image_gradient
from compiler.ops.image.conv_numpy import (
    convolution,
    convolution_filter_gradient,
    convolution_image_gradient,
)
from compiler.ops.image.layouts import (
    channels_first,
    in_layout,
    permuted_layout,
    require_filters,
    require_images,
    to_layout,
    view_channels_first,
)
from compiler.ops.image.window_attributes import WindowAttributes, axis_layout, axis_padding
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown


@overload
def transposed_window(
    count: int, kernel: int, stride: int, dilation: int, padding: tuple[int, int], algorithm: str,
    size: int | None = None, extra: int = 0,
) -> KnownWindow: ...  # fmt: skip


@overload
def transposed_window(
    count: Size, kernel: Size, stride: int, dilation: int, padding: tuple[int, int], algorithm: str,
    size: Size | None = None, extra: int = 0,
) -> Window: ...  # fmt: skip


def transposed_window(
    count: Any, kernel: Any, stride: int, dilation: int, padding: tuple[int, int], algorithm: str,
    size: Any = None, extra: int = 0,
) -> Any:  # fmt: skip
    """Return the window of the convolution that maps an output axis to `count` inputs.

    The output has `size` elements, by default the minimum and `extra`.
    """
    dilation, before, after = axis_layout(count, kernel, stride, dilation, padding, algorithm)
    whole = (count - 1) * stride + dilation * (kernel - 1) + 1
    size = whole - before - after + extra if size is None else size
    return Window(size, kernel, stride, dilation, before, whole - before - size, count)


def transposed_windows(
    counts: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    algorithm: str,
    output_size: Sequence[int],
    output_padding: Sequence[int],
) -> list[KnownWindow]:
    """Return the windows of the convolution that maps output to input images of sizes `counts`."""
    windows: list[KnownWindow] = []
    for axis, (count, taps) in enumerate(zip(counts, kernel, strict=True)):
        padding = axis_padding(paddings, axis, len(counts))
        sliding = (strides[axis], dilations[axis], padding, algorithm)
        size, extra = output_size[axis] if output_size else None, sum(output_padding[axis:][:1])
        w = transposed_window(count, taps, *sliding, size, extra)
        after = max(w.after, 0)
        windows.append(KnownWindow(w.size, taps, w.stride, w.dilation, w.before, after, count))
    return windows


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
        return permuted_layout("data_format", self.data_format, order, "Input", "Output")

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Number of multiplications that compute Output, given the shapes of Input and Filter."""
        return product(shapes["Input"]) * product(shapes["Filter"][1:])

    def output(self, Input: TensorType, Filter: TensorType) -> TensorType:
        """Return the type of Output; raises ShapeError for incompatible Input and Filter."""
        require_images(self.kind, "Input", Input, self.image_axes + 2)
        require_filters(self.kind, Filter, self.image_axes + 2)
        require_same_dtype(self.kind, Input=Input, Filter=Filter)
        batch, channels, *sizes = channels_first(self.data_format, Input.shape)
        odd = isinstance(channels, int) and channels % self.groups
        if odd or differ(channels, Filter.shape[0]):
            shapes = shown(Input=Input, Filter=Filter)
            raise ShapeError(
                f"{self.kind}: {shapes} do not fit in {self.groups} groups: {channels} channels"
            )
        sizes = self.output_sizes(sizes, Filter.shape[2:])
        shape = (batch, Filter.shape[1] * self.groups, *sizes)
        return Input.with_shape(in_layout(self.data_format, shape))

    def output_sizes(self, sizes: Sequence[Size], kernel: Sequence[Size]) -> list[Size]:
        """Return the sizes of the output; raises ShapeError if `output_size` is out of range."""
        least_sizes = [window.size for window in self.windows(sizes, kernel)]
        self.check()
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
        for name in ("output_size", "output_padding"):
            values = self.attributes[name]
            if len(values) not in (0, self.image_axes):
                options = f"expected {self.image_axes} sizes or none"
                raise BadAttribute(f"{self.kind}: {name} is {values}, {options}")

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
        g = self.geometry(Input, Filter, d_Output)
        if d_Input is not None:
            convolve(k, g, d_Output, Filter, d_Input)
        if d_Filter is not None:
            filter_gradient(k, g, d_Output, Input, d_Filter)

    def windows(
        self, counts: Sequence[Size], kernel: Sequence[Size], sizes: Sequence[Size] | None = None
    ) -> tuple[Window, ...]:
        """Return the windows of the convolution that maps Output to Input, which has `counts`.

        Output has `sizes`, by default the minimum.
        """
        attributes = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        sliding = WindowAttributes(self.kind, *attributes, axes=self.image_axes)
        return tuple(
            transposed_window(
                counts[axis], kernel[axis], *sliding.at(axis), sliding.algorithm,
                sizes[axis] if sizes else None,
            )
            for axis in range(self.image_axes)
        )  # fmt: skip

    def geometry(
        self, Input: DeviceOperand, Filter: DeviceOperand, Output: DeviceOperand
    ) -> ConvGeometry:
        """Return the convolution from Output to Input that this op transposes."""
        counts, sizes = (
            channels_first(self.data_format, operand.shape)[2:] for operand in (Input, Output)
        )
        windows = self.windows(counts, Filter.shape[2:], sizes)
        return ConvGeometry(self.data_format, self.groups, windows)


class Conv2dTranspose(ConvTranspose, op="conv2d_transpose"):
    """Transposed convolution of 2-D images, with an optional Bias [F]."""

    Bias = reads(optional=True)
    is_test = attr(False)
    use_mkldnn = attr(False)
    fuse_activation = attr("")
    fuse_relu = attr(False)
    fuse_alpha = attr(0.0)

    def attribute_variant(self) -> str:
        """Return the op with an activation, for attributes that the oneDNN kernel reads."""
        is_active = self.fuse_activation or self.fuse_relu
        return "conv2d_transpose_epilogue" if is_active and self.use_mkldnn else ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        result = self.output(s.Input, s.Filter)
        if (Bias := s.get("Bias")) is not None:
            filters = channels_first(self.data_format, result.shape)[1:2]
            require_same_shape(self.kind, Bias=Bias, Filters=Bias.with_shape(filters))
        return result

    def numpy(self, Input: Array, Filter: Array, Bias: Array | None) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        options = (*sliding, self.output_size, self.output_padding)
        windows = transposed_windows(images.shape[2:], Filter.shape[2:], *options)
        output = convolution_image_gradient(images, Filter, windows, self.groups)
        return to_layout(self.data_format, output if Bias is None else output + Bias[:, None, None])

    def grad(
        self, Input: Array, Filter: Array, Bias: Array | None, d_Output: Array
    ) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        windows = transposed_windows(
            images.shape[2:], Filter.shape[2:], *sliding, upstream.shape[2:], []
        )
        d_images = to_layout(self.data_format, convolution(upstream, Filter, windows, self.groups))
        d_filters = convolution_filter_gradient(upstream, images, windows, self.groups)
        gradients = {"Input": d_images, "Filter": d_filters}
        return gradients if Bias is None else {**gradients, "Bias": upstream.sum(axis=(0, 2, 3))}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        image_gradient(
            k,
            self.geometry(s.Input, s.Filter, s.Output),
            s.Input,
            s.Filter,
            s.Output,
            s.get("Bias"),
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.gradients(k, s.Input, s.Filter, s.d_Output, s.get("d_Input"), s.get("d_Filter"))
        if (d_Bias := s.get("d_Bias")) is not None:
            channel_sums(k, self.data_format, s.d_Output, d_Bias)


class DepthwiseConv2dTranspose(Conv2dTranspose, op="depthwise_conv2d_transpose"):
    """`conv2d_transpose` in which each channel is a group."""


class Conv3dTranspose(ConvTranspose, op="conv3d_transpose"):
    """Transposed convolution of volumes [N, C, D, H, W] (or NDHWC)."""

    image_axes = 3
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
    dilations = attr([1, 1, 1])

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.output(s.Input, s.Filter)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        image_gradient(k, self.geometry(s.Input, s.Filter, s.Output), s.Input, s.Filter, s.Output)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.gradients(k, s.Input, s.Filter, s.d_Output, s.get("d_Input"), s.get("d_Filter"))

    def numpy(self, Input: Array, Filter: Array) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        options = (*sliding, self.output_size, self.output_padding)
        windows = transposed_windows(images.shape[2:], Filter.shape[2:], *options)
        output = convolution_image_gradient(images, Filter, windows, self.groups)
        return to_layout(self.data_format, output)

    def grad(self, Input: Array, Filter: Array, d_Output: Array) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        windows = transposed_windows(
            images.shape[2:], Filter.shape[2:], *sliding, upstream.shape[2:], []
        )
        d_images = to_layout(self.data_format, convolution(upstream, Filter, windows, self.groups))
        return {
            "Input": d_images,
            "Filter": convolution_filter_gradient(upstream, images, windows, self.groups),
        }
