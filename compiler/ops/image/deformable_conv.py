"""Deformable convolution: each tap of each window has an offset of its own, and a weight.

`deformable_conv` is version 2, with a mask; `deformable_conv_v1` has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.opdef.size_comparison import is_no_multiple
from compiler.ir.types import Array, Shape, TensorType
from compiler.ir.windows import ConvGeometry
from compiler.ops.image import deformable_conv_kernels
from compiler.ops.image.conv_numpy import Windows
from compiler.ops.image.deformable_conv_kernels import Deformed
from compiler.ops.image.layouts import require_filters, require_images
from compiler.ops.image.window_attributes import WindowAttributes, image_windows
from compiler.ops.math.bilinear_sampling_numpy import every, sample, sample_gradient
from compiler.ops.type_checks import differ, require_same_dtype, shown


def sample_positions(offset: Array, windows: Windows, parts: int) -> tuple[Array, Array]:
    """Return rows and columns [parts, taps, positions] of an image that the shifted taps sample.

    `offset` is [parts·taps·2, …positions]: down and right for each tap.
    """
    (tall, broad), (high, wide) = ([w.kernel for w in windows], [w.count for w in windows])
    rows, columns = (
        np.add.outer(np.arange(w.kernel) * w.dilation, np.arange(w.count) * w.stride) - w.before
        for w in windows
    )
    moved, shape = offset.reshape(parts, tall * broad, 2, high * wide), (tall, broad, high, wide)
    down = np.broadcast_to(rows[:, None, :, None], shape).reshape(tall * broad, -1)
    right = np.broadcast_to(columns[None, :, None, :], shape).reshape(tall * broad, -1)
    return down + moved[:, :, 0], right + moved[:, :, 1]


def split_channels(image: Array, parts: int) -> Array:
    """Return an image [C, H, W] as images [parts, H, W, C/parts]."""
    return np.moveaxis(image.reshape(parts, len(image) // parts, *image.shape[1:]), 1, -1)


def deformed_columns(image: Array, rows: Array, columns: Array, mask: Array | None) -> Array:
    """Return the weighted samples of all taps: [C·taps, positions]."""
    samples = sample(split_channels(image, len(rows)), every(rows), rows, columns)
    weighted = samples if mask is None else samples * mask.reshape(rows.shape)[..., None]
    return np.moveaxis(weighted, -1, 1).reshape(-1, rows.shape[2])


def deformable_convolution(
    images: Array, offsets: Array, masks: Array | None, filters: Array, windows: Windows, parts: int
) -> Array:
    """Return filters times the samples of the shifted taps: [N, F, …positions]."""
    groups = images.shape[1] // filters.shape[1]
    matrix = filters.reshape(groups, len(filters) // groups, -1)
    result = np.empty((len(images), len(filters), *[w.count for w in windows]), images.dtype)
    for number, image in enumerate(images):
        positions = sample_positions(offsets[number], windows, parts)
        samples = deformed_columns(image, *positions, None if masks is None else masks[number])
        product = matrix @ samples.reshape(groups, matrix.shape[2], -1)
        result[number] = product.reshape(result[number].shape)
    return result


def deformable_gradient(
    images: Array,
    offsets: Array,
    masks: Array | None,
    filters: Array,
    d_output: Array,
    windows: Windows,
    parts: int,
) -> dict[str, Array]:
    """Return the gradients of all inputs, by slot; 0 for offsets far outside the image."""
    groups = images.shape[1] // filters.shape[1]
    matrix = filters.reshape(groups, len(filters) // groups, -1)
    result = {"Input": np.empty_like(images), "Offset": np.empty_like(offsets)}
    d_matrix, d_masks = np.zeros_like(matrix), np.zeros_like(offsets[:, ::2])
    for number, image in enumerate(images):
        mask = None if masks is None else masks[number]
        rows, columns = sample_positions(offsets[number], windows, parts)
        upstream = d_output[number].reshape(groups, matrix.shape[1], -1)
        samples = deformed_columns(image, rows, columns, mask).reshape(groups, matrix.shape[2], -1)
        d_matrix += upstream @ samples.mT
        d_samples = (matrix.mT @ upstream).reshape(parts, -1, *rows.shape[1:])
        d_samples = np.moveaxis(d_samples, 1, -1)
        height, width = image.shape[1:]
        in_range = (rows > -1) & (rows < height) & (columns > -1) & (columns < width)
        channel_parts = split_channels(image, parts)
        plain = sample(channel_parts, every(rows), rows, columns)
        d_masks[number] = (d_samples * plain).sum(axis=-1).reshape(d_masks[number].shape)
        weight = in_range if mask is None else in_range * mask.reshape(rows.shape)
        weighted = d_samples * weight[..., None]
        sampled = sample_gradient(channel_parts, every(rows), rows, columns, weighted)
        result["Input"][number] = np.moveaxis(sampled[0], -1, 1).reshape(image.shape)
        moved = np.stack(sampled[1:], axis=2)
        result["Offset"][number] = moved.reshape(result["Offset"][number].shape)
    return {**result, "Mask": d_masks, "Filter": d_matrix.reshape(filters.shape)}


class DeformableConvolution(OpDef):
    """Output[n, f, y] = Σ Filter[f, c, i] Mask[n, i, y] Input[n, c, s·y + d·i - p + o].

    Here o is Offset[n, i, y]. Input is [N, C, H, W], Filter [F, C/groups, h, w]. Offset [N,
    G·h·w·2, …positions] has a shift down and one to the right for each tap, Mask [N, G·h·w,
    …positions] a weight; each of the G `deformable_groups` of channels has separate ones.
    `im2col_step` has no effect here; the reference mixes up images where it is above 1. Reference:
    deformable_conv_op.cc.
    """

    Input = reads()
    Offset = reads()
    Filter = reads()
    Output = writes(shares_lod=False)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    deformable_groups = attr(1)
    im2col_step = attr(64)

    def output(self, Input: TensorType, Filter: TensorType, **moves: TensorType) -> TensorType:
        """Return the type of Output; raises ShapeError for incompatible inputs."""
        for slot, type in {"Input": Input, "Filter": Filter, **moves}.items():
            require_images(self.kind, slot, type)
        require_filters(self.kind, Filter)
        require_same_dtype(self.kind, Input=Input, Filter=Filter, **moves)
        if differ(Input.shape[1], Filter.shape[1] * self.groups) or (
            is_no_multiple(Filter.shape[0], self.groups)
        ):
            shapes = shown(Input=Input, Filter=Filter)
            raise ShapeError(f"{self.kind}: {shapes} do not fit in {self.groups} groups")
        sliding = WindowAttributes(self.kind, self.strides, self.paddings, self.dilations)
        rows, columns = sliding.over(Input.shape[2:], Filter.shape[2:])
        taps = Filter.shape[2] * Filter.shape[3] * self.deformable_groups
        for slot, depth in (("Offset", taps * 2), ("Mask", taps)):
            expected = (Input.shape[0], depth, rows.count, columns.count)
            self.check(slot, moves.get(slot), expected)
        return Input.with_shape((Input.shape[0], Filter.shape[0], rows.count, columns.count))

    def check(self, slot: str, type: TensorType | None, expected: Sequence[Size]) -> None:
        """Raise ShapeError if a per-tap input has another shape than `expected`."""
        if type and any(differ(a, b) for a, b in zip(type.shape, expected, strict=True)):
            shape = type.with_shape(expected)
            raise ShapeError(f"{self.kind}: {slot} is {type}, expected {shape}")

    def deformed(
        self, Input: DeviceOperand, Offset: DeviceOperand, Mask: DeviceOperand | None, Filter: Shape
    ) -> Deformed:
        """Return the geometry that the device kernels use."""
        sliding = WindowAttributes(self.kind, self.strides, self.paddings, self.dilations)
        windows = sliding.over(Input.shape[2:], Filter[2:])
        conv = ConvGeometry("NCHW", self.groups, windows)
        return Deformed(conv, Input, Offset, Mask, self.deformable_groups)


def gradients(
    k: KernelBuilder, d: Deformed, Filter: DeviceOperand, d_Output: DeviceOperand,
    expected: tuple[DeviceOperand | None, ...],
) -> None:  # fmt: skip
    """Emit kernels for the requested gradients: of input, offsets, mask and filters."""
    images, offset, mask, filters = expected
    if filters is not None:
        deformable_conv_kernels.filter_gradient(k, d, d_Output, filters)
    if images is None and offset is None and mask is None:
        return
    samples = deformable_conv_kernels.sample_gradient_kernel(k, d, Filter, d_Output)
    if images is not None:
        deformable_conv_kernels.image_gradient(k, d, samples, images)
    if offset is not None or mask is not None:
        deformable_conv_kernels.offset_gradient(k, d, samples, offset, mask)


class DeformableConv(DeformableConvolution, op="deformable_conv"):
    """Deformable convolution with a mask (version 2)."""

    Mask = reads()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.output(s.Input, s.Filter, Offset=s.Offset, Mask=s.Mask)

    def numpy(self, Input: Array, Offset: Array, Mask: Array, Filter: Array) -> Array:
        sliding = (self.strides, self.paddings, self.dilations, "EXPLICIT")
        windows = image_windows(Input.shape[2:], Filter.shape[2:], *sliding)
        return deformable_convolution(Input, Offset, Mask, Filter, windows, self.deformable_groups)

    def grad(
        self, Input: Array, Offset: Array, Mask: Array, Filter: Array, d_Output: Array
    ) -> dict[str, Array]:
        sliding = (self.strides, self.paddings, self.dilations, "EXPLICIT")
        windows = image_windows(Input.shape[2:], Filter.shape[2:], *sliding)
        operands, parts = (Input, Offset, Mask, Filter, d_Output), self.deformable_groups
        return deformable_gradient(*operands, windows, parts)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        d = self.deformed(s.Input, s.Offset, s.Mask, s.Filter.shape)
        deformable_conv_kernels.forward(k, d, s.Filter, s.Output)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d = self.deformed(s.Input, s.Offset, s.Mask, s.Filter.shape)
        gradients(
            k,
            d,
            s.Filter,
            s.d_Output,
            (s.get("d_Input"), s.get("d_Offset"), s.get("d_Mask"), s.get("d_Filter")),
        )


class DeformableConvV1(DeformableConvolution, op="deformable_conv_v1"):
    """Deformable convolution without a mask."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.output(s.Input, s.Filter, Offset=s.Offset)

    def numpy(self, Input: Array, Offset: Array, Filter: Array) -> Array:
        sliding = (self.strides, self.paddings, self.dilations, "EXPLICIT")
        windows = image_windows(Input.shape[2:], Filter.shape[2:], *sliding)
        return deformable_convolution(Input, Offset, None, Filter, windows, self.deformable_groups)

    def grad(self, Input: Array, Offset: Array, Filter: Array, d_Output: Array) -> dict[str, Array]:
        sliding = (self.strides, self.paddings, self.dilations, "EXPLICIT")
        windows = image_windows(Input.shape[2:], Filter.shape[2:], *sliding)
        operands, parts = (Input, Offset, None, Filter, d_Output), self.deformable_groups
        all_gradients = deformable_gradient(*operands, windows, parts)
        return {slot: all_gradients[slot] for slot in ("Input", "Offset", "Filter")}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        d = self.deformed(s.Input, s.Offset, None, s.Filter.shape)
        deformable_conv_kernels.forward(k, d, s.Filter, s.Output)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d = self.deformed(s.Input, s.Offset, None, s.Filter.shape)
        gradients(
            k,
            d,
            s.Filter,
            s.d_Output,
            (s.get("d_Input"), s.get("d_Offset"), None, s.get("d_Filter")),
        )
