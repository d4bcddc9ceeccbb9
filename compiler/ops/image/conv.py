"""Convolution ops: `conv2d`, `depthwise_conv2d` (one group per channel) and `conv3d`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.libraries import MatrixProduct
from compiler.ir.opdef import OpDef, Slots, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp, Prepermuted
from compiler.ir.opdef.size_comparison import is_no_multiple
from compiler.ir.types import Array, Shape, TensorType
from compiler.ir.windows import HWIO, HWOI, OIHW, ConvGeometry, Window, is_channels_last
from compiler.ops.image.conv_kernels import channel_sums, filter_gradient, image_gradient
from compiler.ops.image.conv_kernels import convolve as convolve_kernel
from compiler.ops.image.conv_numpy import (
    convolution,
    convolution_filter_gradient,
    convolution_image_gradient,
)
from compiler.ops.image.conv_tiles import (
    MIN_TILE_POSITIONS,
    backward_tiling,
    convolve_rows,
    convolve_samples,
    filter_gradient_tiles,
    forward_tiling,
    image_gradient_tiles,
    product_gradient,
    tile_partial,
    tile_scratch,
)
from compiler.ops.image.im2col import Im2col, convolution_scratch, convolve
from compiler.ops.image.layouts import (
    channels_first,
    channels_first_expression,
    filter_axes,
    filters_first,
    in_layout,
    permuted_layout,
    require_filters,
    require_images,
    to_layout,
    view_channels_first,
    view_filters_first,
)
from compiler.ops.image.window_attributes import (
    WindowAttributes,
    check_windows_at_bind,
    image_windows,
)
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown


class Convolution(OpDef):
    """Output[n, f, y] = Bias[f] + Σ Filter[f, c, i] Input[n, c, s·y + d·i - p], y and i per axis.

    Input is [N, C, …] (or [N, …, C], see data_format), Filter [F, C/groups, …] in either case
    (other orders where the compiler has permuted it, see filter_format), Bias [F]. The filters
    of a group read the channels of that group. Paddings p have one size per axis, or two: before
    and after. Reference: conv_op.cc.
    """

    linear_in = (("Input",), ("Filter",))

    image_axes: ClassVar[int] = 2
    with_epilogue: ClassVar[str] = ""
    prefers_channels_last = True
    epilogue = "Output"
    epilogue_grad = "Input"

    Input = reads()
    Filter = reads()
    ResidualData = reads(optional=True, no_grad=True)
    Output = writes()
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW")
    filter_format = attr(OIHW)
    is_test = attr(False)
    use_mkldnn = attr(False)
    fuse_activation = attr("")
    fuse_relu = attr(False)
    fuse_brelu = attr(False)
    fuse_brelu_threshold = attr(6.0)
    fuse_alpha = attr(0.0)
    fuse_residual_connection = attr(False)

    def attribute_variant(self) -> str:
        """Return the op with an epilogue, for attributes that the oneDNN kernel reads."""
        is_fused = self.fuse_activation or self.fuse_relu or self.fuse_brelu
        is_fused = is_fused or self.fuse_residual_connection
        return self.with_epilogue if is_fused and self.use_mkldnn else ""

    def output(self, Input: TensorType, Filter: TensorType) -> TensorType:
        """Return the type of Output; raises ShapeError for incompatible Input and Filter."""
        require_images(self.kind, "Input", Input, self.image_axes + 2)
        require_filters(self.kind, Filter, self.image_axes + 2)
        require_same_dtype(self.kind, Input=Input, Filter=Filter)
        batch, channels, *_ = channels_first(self.data_format, Input.shape)
        filters, depth, *taps = filters_first(self.filter_format, Filter.shape)
        if differ(channels, depth * self.groups) or is_no_multiple(filters, self.groups):
            raise ShapeError(
                f"{self.kind}: {shown(Input=Input, Filter=Filter)} do not fit in {self.groups}"
                f" groups: {channels} channels, {filters} filters of {depth} channels"
            )
        counts = [window.count for window in self.windows(Input.shape, taps)]
        shape = (batch, filters, *counts)
        return Input.with_shape(in_layout(self.data_format, shape))

    def gradients(
        self, k: KernelBuilder, Input: DeviceOperand, Filter: DeviceOperand,
        d_Output: DeviceOperand, d_Input: DeviceOperand | None, d_Filter: DeviceOperand | None,
    ) -> None:  # fmt: skip
        """Emit the kernels of the requested gradients."""
        g = self.geometry(Input, Filter)
        if d_Input is not None:
            image_gradient(k, g, d_Output, Filter, d_Input)
        if d_Filter is not None:
            filter_gradient(k, replace(g, filters=OIHW), Input, d_Output, d_Filter)

    def geometry(self, Input: DeviceOperand, Filter: DeviceOperand) -> ConvGeometry:
        """Return the windows, groups and layouts of the device kernels."""
        taps = filters_first(self.filter_format, Filter.shape)[2:]
        windows = self.windows(Input.shape, taps)
        return ConvGeometry(self.data_format, self.groups, windows, self.filter_format)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute to channels last, and filters too for longer contiguous reads.

        The gradient of the images reads them along channels; with one tap they lie so already.
        """
        permuted = permuted_layout("data_format", self.data_format, order, "Input", "Output")
        taps = tuple(range(2, len(order)))
        ahead = Prepermuted({"Filter": (*taps, 1, 0)}, {"filter_format": HWIO})
        grad_ahead = Prepermuted({"Filter": (*taps, 0, 1)}, {"filter_format": HWOI})
        several = self.groups == 1 and product(types["Filter"][0].shape[2:]) != 1
        return permuted and replace(
            permuted, ahead=ahead, grad_ahead={"Input": grad_ahead} if several else {}
        )

    def gradient_type(self, slot: str, given: TensorType) -> TensorType:
        """Return the type of a gradient: that of a filter is [F, C/groups, …] in every case."""
        if slot != "Filter":
            return given
        return given.with_shape(filters_first(self.filter_format, given.shape))

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Number of multiplications that compute Output, given the shapes of Filter and Output."""
        filters = filters_first(self.filter_format, shapes["Filter"])
        return product(shapes["Output"]) * product(filters[1:])

    def matrix_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return Output if each window is one element of channels-last images, without a bias."""
        views = self._matrices(types)
        if not views or types.get("Bias"):
            return {}
        weight = "Filter", self.filter_format != HWIO
        return {"Output": MatrixProduct(("Input", False), weight, views)}

    def gradient_products(self, types: Types) -> dict[str, MatrixProduct]:
        """Return the gradients of such images and filters."""
        views = self._matrices(types)
        if not views or self.filter_format != OIHW:
            return {}
        upstream, images = ("Output", False), ("Input", False)
        return {
            "Input": MatrixProduct(upstream, ("Filter", False), views),
            "Filter": MatrixProduct(("Output", True), images, views),
        }

    def _matrices(self, types: Types) -> dict[str, Shape]:
        """Return images, filters and outputs as matrices; empty if windows are not one element."""
        (images,), (filters,) = types["Input"], types["Filter"]
        count, depth, *taps = filters_first(self.filter_format, filters.shape)
        if self.groups != 1 or not is_channels_last(self.data_format):
            return {}
        if not all(window.is_identity for window in self.windows(images.shape, taps)):
            return {}
        positions = product(images.shape[:-1])
        matrix = (depth, count) if self.filter_format == HWIO else (count, depth)
        return {"Input": (positions, depth), "Filter": matrix, "Output": (positions, count)}

    def windows(self, Input: Shape, taps: Sequence[Size]) -> tuple[Window, ...]:
        """Return the windows of images of this shape."""
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        attributes = WindowAttributes(self.kind, *sliding, axes=self.image_axes)
        return attributes.over(channels_first(self.data_format, Input)[2:], taps)


class Conv3d(Convolution, op="conv3d"):
    """Convolution of volumes: Input [N, C, D, H, W] (or NDHWC), Filter [F, C/groups, d, h, w]."""

    image_axes = 3
    with_epilogue = "conv3d_epilogue"
    data_format = attr("NCDHW")
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
    dilations = attr([1, 1, 1])

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.output(s.Input, s.Filter)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        convolve_kernel(k, self.geometry(s.Input, s.Filter), s.Input, s.Filter, s.Output)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.gradients(k, s.Input, s.Filter, s.d_Output, s.get("d_Input"), s.get("d_Filter"))

    def numpy(self, Input: Array, Filter: Array) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        filters = view_filters_first(self.filter_format, Filter)
        windows = image_windows(images.shape[2:], filters.shape[2:], *sliding)
        return to_layout(self.data_format, convolution(images, filters, windows, self.groups))

    def grad(self, Input: Array, Filter: Array, d_Output: Array) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        filters = view_filters_first(self.filter_format, Filter)
        windows = image_windows(images.shape[2:], filters.shape[2:], *sliding)
        d_images = convolution_image_gradient(upstream, filters, windows, self.groups)
        d_filters = convolution_filter_gradient(images, upstream, windows, self.groups)
        return {"Input": to_layout(self.data_format, d_images), "Filter": d_filters}


class Conv2d(Convolution, op="conv2d"):
    """Convolution of 2-D images: Input [N, C, H, W] (or NHWC), Filter [F, C/groups, h, w]."""

    Bias = reads(optional=True)
    gaps = frozenset({"Input", "Output"})
    with_epilogue = "conv2d_epilogue"

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Filter = s.Filter
        if (Bias := s.get("Bias")) is not None:
            first = filters_first(self.filter_format, Filter.shape)[:1]
            filters = Filter.with_shape(first)
            require_same_shape(self.kind, Bias=Bias, Filters=filters)
        return self.output(s.Input, Filter)

    def numpy(self, Input: Array, Filter: Array, Bias: Array | None) -> Array:
        images = view_channels_first(self.data_format, Input)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        filters = view_filters_first(self.filter_format, Filter)
        windows = image_windows(images.shape[2:], filters.shape[2:], *sliding)
        output = convolution(images, filters, windows, self.groups)
        return to_layout(self.data_format, output if Bias is None else output + Bias[:, None, None])

    def grad(
        self, Input: Array, Filter: Array, Bias: Array | None, d_Output: Array
    ) -> dict[str, Array]:
        images = view_channels_first(self.data_format, Input)
        upstream = view_channels_first(self.data_format, d_Output)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        filters = view_filters_first(self.filter_format, Filter)
        windows = image_windows(images.shape[2:], filters.shape[2:], *sliding)
        d_images = convolution_image_gradient(upstream, filters, windows, self.groups)
        d_filters = convolution_filter_gradient(images, upstream, windows, self.groups)
        gradients = {"Input": to_layout(self.data_format, d_images), "Filter": d_filters}
        return gradients if Bias is None else {**gradients, "Bias": upstream.sum(axis=(0, 2, 3))}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Input, Filter, Output = s.Input, s.Filter, s.Output
        Filter = self.filters(k, Filter)
        g = self.products(Input, Filter)
        check_windows_at_bind(k, self.kind, (g.rows, g.columns))
        if self.is_product(g):
            self.lower_product(k, g, Input, Filter, Output)
        elif self.is_sampled(g):
            self.lower_samples(k, g, Input, Filter, Output)
        else:
            operands = (
                f"{self.nchw(k, Input)}, {Filter.view(g.filter_matrix)}, {self.nchw(k, Output)}"
            )
            self.lower_windows(k, g, operands)
        if (Bias := s.get("Bias")) is not None:
            bias = Bias.view(in_layout(self.data_format, (1, g.filters, 1, 1)))
            k.line(f"np.add({Output}, {bias}, out={Output})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Input, Filter = s.Input, s.Filter
        d_Input, d_Filter, d_Bias = s.get("d_Input"), s.get("d_Filter"), s.get("d_Bias")
        Filter = self.filters(k, Filter)
        g, upstream = self.products(Input, Filter), self.nchw(k, s.d_Output)
        if d_Bias is not None:
            k.line(f"np.einsum('ncyx->c', {upstream}, out={d_Bias})")
        if self.is_product(g):
            wanted = (d_Input, d_Filter)
            d_Input, d_Filter = self.lower_product_grad(k, g, Input, Filter, s.d_Output, *wanted)
        if d_Input is None and d_Filter is None:
            return
        tiling = backward_tiling(g)
        work, position = tile_scratch(k, tiling), f"{g.rows.stride}, {g.rows.before}"
        if d_Filter is not None:
            target = (
                f"{d_Filter.view(g.filter_matrix)}, {work}, {tile_partial(k, tiling)}, {position}"
            )
            function = k.function(filter_gradient_tiles)
            k.line(f"{function}({self.nchw(k, Input)}, {upstream}, {target})")
        if d_Input is not None:
            target = f"{Filter.view(g.filter_matrix)}, {self.nchw(k, d_Input)}, {work}, {position}"
            k.line(f"{k.function(image_gradient_tiles)}({upstream}, {target})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        convolve_kernel(
            k, self.geometry(s.Input, s.Filter), s.Input, s.Filter, s.Output, s.get("Bias")
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.gradients(k, s.Input, s.Filter, s.d_Output, s.get("d_Input"), s.get("d_Filter"))
        if (d_Bias := s.get("d_Bias")) is not None:
            channel_sums(k, self.data_format, s.d_Output, d_Bias)

    def lower_product_grad(
        self,
        k: SourceBuilder,
        g: Im2col,
        Input: Operand,
        Filter: Operand,
        d_Output: Operand,
        d_Input: Operand | None,
        d_Filter: Operand | None,
    ) -> tuple[Operand | None, Operand | None]:
        """Emit products of the images; return the gradients that tiling computes faster."""
        matrix = (g.filters, g.images.shape[1])
        if d_Input is not None:
            k.line(f"np.matmul({Filter.view(matrix)}.T, {flat(d_Output)}, out={flat(d_Input)})")
        positions = product(g.grid)
        if (
            d_Filter is None
            or not isinstance(positions, int)
            or positions < MIN_TILE_POSITIONS.value // 2
        ):
            return None, d_Filter
        function, share = k.function(product_gradient), k.scratch(matrix, g.images.dtype)
        target = f"{d_Filter.view(matrix)}, {share}"
        k.line(f"{function}({flat(Input)}, {flat(d_Output)}, {target})")
        return None, None

    def lower_windows(self, k: SourceBuilder, g: Im2col, operands: str) -> None:
        """Emit filters times windows, by rows of an image or by whole images."""
        tiling = forward_tiling(g)
        if tiling is None:
            k.line(f"{k.function(convolve)}({operands}, {convolution_scratch(k, g)})")
            return
        position = f"{g.rows.stride}, {g.rows.before}"
        k.line(f"{k.function(convolve_rows)}({operands}, {tile_scratch(k, tiling)}, {position})")

    def filters(self, k: SourceBuilder, Filter: Operand) -> Operand:
        """Return filters as [F, C, taps…]; emits a copy if they have another layout."""
        if self.filter_format == "OIHW":
            return Filter
        copy = k.scratch(filters_first(self.filter_format, Filter.shape), Filter.type.dtype)
        axes = filter_axes(self.filter_format, len(Filter.shape))
        k.line(f"np.copyto({copy}, {Filter}.transpose{axes})")
        return copy

    def products(self, Input: Operand, Filter: Operand) -> Im2col:
        """Return the matrix products that the lowering emits."""
        images = channels_first(self.data_format, Input.shape)
        rows, columns = self.windows(Input.shape, Filter.shape[2:])
        typed = Input.type.with_shape(images)
        return Im2col(typed, Filter.shape[0], self.groups, rows, columns)

    def nchw(self, k: SourceBuilder, images: Operand) -> str:
        """Return an expression for the images as [N, C, H, W]."""
        return channels_first_expression(k, self.data_format, images)

    def is_product(self, g: Im2col) -> bool:
        """True if each window covers exactly its position: a product without gathering."""
        plain = self.groups == 1 and not is_channels_last(self.data_format)
        return plain and all(window.is_identity for window in (g.rows, g.columns))

    def is_sampled(self, g: Im2col) -> bool:
        """True where each window covers one position and strides may skip some."""
        plain = self.groups == 1 and not is_channels_last(self.data_format)
        return plain and all(w.kernel == 1 and w.is_padless for w in (g.rows, g.columns))

    def lower_samples(
        self, k: SourceBuilder, g: Im2col, Input: Operand, Filter: Operand, Output: Operand
    ) -> None:
        """Emit one matrix product per image, over the sampled positions."""
        channels, dtype = g.images.shape[1], g.images.dtype
        rows, columns = g.rows.stride, g.columns.stride
        samples = k.at_bind(f"{Input}[:, :, ::{rows}, ::{columns}]", [Input], "samples")
        scratch = k.scratch((channels, product(g.grid)), dtype)
        matrix = Filter.view((g.filters, channels))
        function = k.function(convolve_samples)
        k.line(f"{function}({samples}, {matrix}, {flat(Output)}, {scratch})")

    def lower_product(
        self, k: SourceBuilder, g: Im2col, Input: Operand, Filter: Operand, Output: Operand
    ) -> None:
        """Emit one matrix product per image."""
        matrix = Filter.view((g.filters, g.images.shape[1]))
        k.line(f"np.matmul({matrix}, {flat(Input)}, out={flat(Output)})")


def flat(images: Operand) -> str:
    """Return an expression for images [N, C, H, W] as matrices [N, C, positions]."""
    return images.view((*images.shape[:2], product(images.shape[2:])))


class DepthwiseConv2d(Conv2d, op="depthwise_conv2d"):
    """`conv2d` in which each channel is a group with filters of its own.

    Reference: conv_op.cc registers the same operator under this name.
    """

    grad = Conv2d.grad
