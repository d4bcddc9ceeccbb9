"""Convolution of images: `conv2d`, and `depthwise_conv2d`, which is the same with many groups."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops import windows
from compiler.ops.checks import differ, require_same_dtype, require_same_shape, shown
from compiler.ops.im2col import (
    Geometry,
    convolve,
    filter_gradient,
    filter_shares,
    image_gradient,
    workplace,
)
from compiler.ops.windows import Axis, Sliding

Axes: TypeAlias = tuple[Axis, Axis]


class Conv2d(OpDef, op="conv2d"):
    """Output[n, f, y, x] = Bias[f] + Σ Filter[f, c, i, j] Input[n, c, s·y + d·i - p, s·x + d·j - p]

    Input is [N, C, H, W] (or [N, H, W, C] with data_format NHWC), Filter [F, C/groups, kh, kw] in
    either case, Bias [F]. Filters of a group see the channels of that group. Paddings p are
    [height, width] or [top, bottom, left, right]. Reference: conv_op.cc.
    """

    Input = reads()
    Filter = reads()
    Bias = reads(optional=True)
    Output = writes()
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW")
    is_test = attr(False)

    def infer(self, Input: TensorType, Filter: TensorType, Bias: TensorType | None) -> TensorType:
        windows.require_images(self.kind, "Input", Input)
        windows.require_images(self.kind, "Filter", Filter)
        require_same_dtype(self.kind, Input=Input, Filter=Filter)
        batch, channels, *_ = windows.channels_first(self.data_format, Input.shape)
        filters, depth, *_ = Filter.shape
        if differ(channels, depth * self.groups) or (
            isinstance(filters, int) and filters % self.groups
        ):
            raise ShapeError(
                f"{self.kind}: {shown(Input=Input, Filter=Filter)} do not fit in {self.groups}"
                f" groups: {channels} channels, {filters} filters of {depth} channels"
            )
        if Bias is not None:
            require_same_shape(self.kind, Bias=Bias, Filters=Filter.with_shape((filters,)))
        rows, columns = self.axes(Input.shape, Filter.shape)
        shape = (batch, filters, rows.count, columns.count)
        return Input.with_shape(windows.in_layout(self.data_format, shape))

    def axes(self, Input: Shape, Filter: Shape) -> Axes:
        """Where the filters stand on rows and columns."""
        sliding = Sliding(
            self.kind, self.strides, self.paddings, self.dilations, self.padding_algorithm
        )
        image = windows.channels_first(self.data_format, Input)[2:]
        return sliding.over(image, Filter[2:])

    def numpy(self, Input: Array, Filter: Array, Bias: Array | None) -> Array:
        axes = self.axes(Input.shape, Filter.shape)
        seen = _windows(self.padded(Input, axes), axes)
        output = np.einsum("ngcyxij,gfcij->ngfyx", seen, self.by_group(Filter, 0))
        output = output.reshape(len(Input), len(Filter), *output.shape[-2:])
        return self.laid_out(output if Bias is None else output + Bias[:, None, None])

    def grad(
        self, Input: Array, Filter: Array, Bias: Array | None, d_Output: Array
    ) -> dict[str, Array]:
        axes = self.axes(Input.shape, Filter.shape)
        padded, filters = self.padded(Input, axes), self.by_group(Filter, 0)
        above = windows.seen_channels_first(self.data_format, d_Output)
        d_out, d_padded = self.by_group(above, 1), np.zeros_like(padded)
        d_filters = np.einsum("ngcyxij,ngfyx->gfcij", _windows(padded, axes), d_out)
        d_seen = _windows(d_padded, axes)
        for i, j in np.ndindex(Filter.shape[2:]):
            d_seen[..., i, j] += np.einsum("ngfyx,gfc->ngcyx", d_out, filters[..., i, j])
        d_image = d_padded.reshape(len(Input), -1, *d_padded.shape[-2:])[:, :, *map(_inside, axes)]
        found = {"Input": self.laid_out(d_image), "Filter": d_filters.reshape(Filter.shape)}
        return found if Bias is None else {**found, "Bias": above.sum(axis=(0, 2, 3))}

    def by_group(self, array: Array, axis: int) -> Array:
        """An array with the channels or filters on an axis split into groups."""
        before, after = array.shape[:axis], array.shape[axis + 1 :]
        return array.reshape(*before, self.groups, array.shape[axis] // self.groups, *after)

    def padded(self, images: Array, axes: Axes) -> Array:
        """Images as [N, groups, C/groups, H, W], with zeros around them."""
        borders: Any = [(0, 0), (0, 0), *((axis.before, axis.after) for axis in axes)]
        seen = windows.seen_channels_first(self.data_format, images)
        return self.by_group(np.pad(seen, borders), 1)

    def laid_out(self, images: Array) -> Array:
        """[N, C, H, W] in the layout of the op's tensors."""
        last = self.data_format == windows.CHANNELS_LAST
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if last else images

    def lower(
        self, k: Kernel, Input: Operand, Filter: Operand, Bias: Operand | None, Output: Operand
    ) -> None:
        g = self.geometry(Input, Filter)
        windows.require_places(k, self.kind, (g.rows, g.columns))
        if self.is_product(g):
            self.lower_product(k, g, Input, Filter, Output)
        else:
            images, outputs = self.seen(k, Input), self.seen(k, Output)
            matrix = Filter.view(g.filter_matrix)
            k.line(f"{k.function(convolve)}({images}, {matrix}, {outputs}, {workplace(k, g)})")
        if Bias is not None:
            bias = Bias.view(windows.in_layout(self.data_format, (1, g.filters, 1, 1)))
            k.line(f"np.add({Output}, {bias}, out={Output})")

    def lower_grad(
        self,
        k: Kernel,
        Input: Operand,
        Filter: Operand,
        d_Output: Operand,
        d_Input: Operand | None,
        d_Filter: Operand | None,
        d_Bias: Operand | None,
    ) -> None:
        g, above = self.geometry(Input, Filter), self.seen(k, d_Output)
        if d_Bias is not None:
            k.line(f"np.einsum('ncyx->c', {above}, out={d_Bias})")
        if d_Input is None and d_Filter is None:
            return
        work = workplace(k, g)
        if d_Filter is not None:
            target = f"{d_Filter.view(g.filter_matrix)}, {work}, {filter_shares(k, g)}"
            k.line(f"{k.function(filter_gradient)}({self.seen(k, Input)}, {above}, {target})")
        if d_Input is not None:
            target = f"{Filter.view(g.filter_matrix)}, {self.seen(k, d_Input)}, {work}"
            k.line(f"{k.function(image_gradient)}({above}, {target})")

    def geometry(self, Input: Operand, Filter: Operand) -> Geometry:
        """The sizes a lowering goes by."""
        images = windows.channels_first(self.data_format, Input.shape)
        rows, columns = self.axes(Input.shape, Filter.shape)
        typed = Input.type.with_shape(images)
        return Geometry(typed, Filter.shape[0], self.groups, rows, columns)

    def seen(self, k: Kernel, images: Operand) -> str:
        """The expression for images as [N, C, H, W]."""
        return windows.text_channels_first(k, self.data_format, images)

    def is_product(self, g: Geometry) -> bool:
        """True where every output place sees one place: images are multiplied as they lie."""
        plain = self.groups == 1 and self.data_format != windows.CHANNELS_LAST
        return plain and all(axis.is_identity for axis in (g.rows, g.columns))

    def lower_product(
        self, k: Kernel, g: Geometry, Input: Operand, Filter: Operand, Output: Operand
    ) -> None:
        """Write one product of matrices an image."""
        batch, channels, *image = g.images.shape
        seen = Input.view((batch, channels, product(image)))
        made = Output.view((batch, g.filters, product(image)))
        k.line(f"np.matmul({Filter.view((g.filters, channels))}, {seen}, out={made})")


class DepthwiseConv2d(Conv2d, op="depthwise_conv2d"):
    """`conv2d` in which each channel is a group: its filters see that channel alone.

    Reference: conv_op.cc registers the same operator under this name.
    """

    grad = Conv2d.grad


def _windows(padded: Array, axes: Axes) -> Array:
    """What each window sees: [N, groups, C/groups, oh, ow, kh, kw], a view that can be written."""
    spans: Any = [axis.span for axis in axes]
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, (-2, -1), writeable=True)
    places = [slice(None, None, axis.stride) for axis in axes]
    return seen[..., *places, *(slice(None, None, axis.dilation) for axis in axes)]


def _inside(axis: Axis) -> slice:
    """The image in its padding."""
    return slice(axis.before, axis.before + axis.size)
