"""`deformable_psroi_pooling`: position-sensitive RoI pooling with learned offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, reads, reads_lod, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import at_least, between
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Operand
from compiler.ir.opdef.size_comparison import is_no_multiple
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image import deformable_psroi_pooling_kernels
from compiler.ops.image.deformable_psroi_pooling_kernels import PartSampling
from compiler.ops.image.layouts import require_images, require_pixels
from compiler.ops.image.roi_align import MAX_SAMPLES
from compiler.ops.image.roi_pool import SCALES, images_of, require_count
from compiler.ops.image.roi_pool_kernels import Boxes
from compiler.ops.image.roi_pool_numpy import away_from_zero, image_indices
from compiler.ops.math.bilinear_sampling_numpy import sample, sample_gradient
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.type_checks import differ, shown


def scaled_indices(cells: Sequence[int], other: Sequence[int]) -> Array:
    """For each cell in row-major order, return the index of the coarser cell that contains it."""
    rows, columns = np.indices(tuple(cells)).reshape(2, -1)
    return (rows * other[0] // cells[0]) * other[1] + columns * other[1] // cells[1]


def box_samples(
    box: Array, moves: Array, scale: float, cells: Sequence[int], samples: int
) -> tuple[list[Array], Array]:
    """Return sample rows and columns [classes, cells, samples²] of a box, and its two sides.

    `moves` [classes, 2, cells] shift to the right and down, as fractions of a side.
    """
    left, top, right, bottom = away_from_zero(box)
    starts = np.array([top, left]) * scale - 0.5
    sides = np.maximum((np.array([bottom, right]) + 1) * scale - 0.5 - starts, 0.1)
    positions: list[Array] = []
    for axis, (start, side, count) in enumerate(zip(starts, sides, cells, strict=True)):
        step = side / count
        first = start + np.indices(tuple(cells))[axis].reshape(-1) * step
        first = first + moves[:, 1 - axis] * side
        inside = np.indices((samples, samples))[axis].reshape(-1) * (step / samples)
        positions.append(first[..., None] + inside)
    return positions, sides


def clamped_positions(positions: Array, size: int) -> tuple[Array, Array]:
    """Return positions clamped to an axis, and whether each was close enough to count."""
    return np.clip(positions, 0, size - 1), (positions >= -0.5) & (positions <= size - 0.5)


class DeformablePsroiPooling(OpDef, op="deformable_psroi_pooling"):
    """Output = mean of `sample_per_part`² samples in each cell of each box, TopCount their number.

    Input is [N, C, H, W], ROIs [R, 4], Output [R, output_dim, pooled_height, pooled_width]. Channel
    (c·group_h + i)·group_w + j of Input makes channel c of Output in group (i, j) of the cells.
    Trans [R, classes·2, …part_size] shifts the samples of a part to the right and down, in sides of
    the box times `trans_std`; classes share the channels. Reference: deformable_psroi_pooling_op.h.
    """

    Input = reads()
    ROIs = reads(no_grad=True)
    ROIs_lod = reads_lod("ROIs", optional=True)
    Trans = reads()
    TopCount = writes()
    Output = writes()
    no_trans: Attr[bool] = required(bool)
    spatial_scale: Attr[float] = required(float, SCALES)
    output_dim: Attr[int] = required(int)
    group_size: Attr[list[int]] = required_list(int, at_least(1))
    pooled_height: Attr[int] = required(int, at_least(1))
    pooled_width: Attr[int] = required(int, at_least(1))
    part_size: Attr[list[int]] = required_list(int, at_least(1))
    sample_per_part: Attr[int] = required(int, between(0, MAX_SAMPLES))
    trans_std: Attr[float] = required(float, between(-1e6, 1e6))

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Input, ROIs = s.Input, s.ROIs
        require_images(self.kind, "Input", Input)
        require_count(self.kind, "Input", Input, images_of(None, s.all("ROIs_lod")))
        require_pixels(self.kind, "Input", Input)
        if ROIs.rank != 2 or differ(ROIs.shape[1], 4):
            raise ShapeError(f"{self.kind}: ROIs is {ROIs}, expected boxes [R, 4]")
        wanted = self.output_dim * self.group_size[0] * self.group_size[1]
        if differ(Input.shape[1], wanted):
            raise ShapeError(f"{self.kind}: Input is {Input}, expected {wanted} channels")
        require_images(self.kind, "Trans", s.Trans)
        if not self.no_trans:
            self.check_parts(ROIs, s.Trans)
        cells = (self.pooled_height, self.pooled_width)
        result = Input.with_shape((ROIs.shape[0], self.output_dim, *cells))
        return {"TopCount": result, "Output": result}

    def check_parts(self, ROIs: TensorType, Trans: TensorType) -> None:
        """Raise ShapeError unless Trans shifts the parts of each box, of classes alike."""
        classes = Trans.shape[1] // 2
        if any(differ(a, b) for a, b in zip(Trans.shape[2:], self.part_size, strict=True)):
            raise ShapeError(f"{self.kind}: Trans is {Trans}, expected parts {self.part_size}")
        if differ(Trans.shape[0], ROIs.shape[0]):
            raise ShapeError(f"{self.kind}: {shown(Trans=Trans, ROIs=ROIs)}, expected equal rows")
        if is_no_multiple(Trans.shape[1], 2) or is_no_multiple(self.output_dim, classes):
            raise ShapeError(
                f"{self.kind}: Trans is {Trans}, expected two channels for each of the classes, "
                f"which divide output_dim={self.output_dim}"
            )

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Input": s.Input, "Trans": s.Trans}

    def numpy(
        self, Input: Array, ROIs: Array, ROIs_lod: list[Array] | None, Trans: Array
    ) -> dict[str, Array]:
        numbers, cells = image_indices(len(ROIs), len(Input), None, ROIs_lod), self.pooled_height
        shape = (len(ROIs), self.output_dim, cells, self.pooled_width)
        out, counts = np.zeros((2, *shape), Input.dtype)
        groups = scaled_indices(shape[2:], self.group_size)
        parts = scaled_indices(shape[2:], self.part_size)
        for number, box in enumerate(ROIs):
            moves = part_offsets(Trans[number], parts, self.no_trans, self.trans_std)
            sampling = (moves, self.spatial_scale, shape[2:], self.sample_per_part)
            images, which = class_images(Input[numbers[number]], len(moves), groups)
            positions, _ = box_samples(box, *sampling)
            rows, rows_in_range = clamped_positions(positions[0], Input.shape[2])
            columns, columns_in_range = clamped_positions(positions[1], Input.shape[3])
            counted = rows_in_range & columns_in_range
            samples = sample(images, which, rows, columns) * counted[..., None]
            count = counted.sum(axis=2)[..., None]
            mean = samples.sum(axis=2) / np.maximum(count, 1)
            out[number] = np.moveaxis(mean, 2, 1).reshape(shape[1:])
            counts[number] = np.moveaxis(count + 0 * mean, 2, 1).reshape(shape[1:])
        return {"TopCount": counts, "Output": out}

    def grad(
        self,
        Input: Array,
        ROIs: Array,
        ROIs_lod: list[Array] | None,
        Trans: Array,
        TopCount: Array,
        d_Output: Array,
    ) -> dict[str, Array]:
        numbers, shape = image_indices(len(ROIs), len(Input), None, ROIs_lod), d_Output.shape
        d_input, d_trans = np.zeros_like(Input), np.zeros_like(Trans)
        groups = scaled_indices(shape[2:], self.group_size)
        parts = scaled_indices(shape[2:], self.part_size)
        for number, box in enumerate(ROIs):
            moves = part_offsets(Trans[number], parts, self.no_trans, self.trans_std)
            sampling = (moves, self.spatial_scale, shape[2:], self.sample_per_part)
            images, which = class_images(Input[numbers[number]], len(moves), groups)
            positions, sides = box_samples(box, *sampling)
            rows, rows_in_range = clamped_positions(positions[0], Input.shape[2])
            columns, columns_in_range = clamped_positions(positions[1], Input.shape[3])
            share = d_Output[number] / np.maximum(TopCount[number], 1)
            share = np.moveaxis(share.reshape(len(moves), -1, len(groups)), 1, 2)
            upstream = share[:, :, None] * (rows_in_range & columns_in_range)[..., None]
            gradients = sample_gradient(images, which, rows, columns, upstream)
            d_input[numbers[number]] += merge_class_images(
                gradients[0], len(moves), Input.shape[1:]
            )
            if self.no_trans:
                continue
            # A sample exactly on an element has slope 0, as in the reference.
            down = (gradients[1] * (rows != np.floor(rows))).sum(axis=2) * sides[0]
            right = (gradients[2] * (columns != np.floor(columns))).sum(axis=2) * sides[1]
            flat = d_trans[number].reshape(len(moves), 2, -1)
            for cell, part in enumerate(parts):
                flat[:, 0, part] += right[:, cell] * self.trans_std
                flat[:, 1, part] += down[:, cell] * self.trans_std
        return {"Input": d_input, "Trans": d_trans}

    def parts(
        self,
        k: KernelBuilder,
        Input: Shape,
        ROIs: DeviceOperand,
        ROIs_lod: list[Operand],
        Trans: DeviceOperand,
    ) -> PartSampling:
        """Return the sampling parameters of the device kernels."""
        owners = owner_rows(k, ROIs_lod[-1], ROIs.shape[0]) if ROIs_lod else None
        cells = (self.pooled_height, self.pooled_width)
        boxes = Boxes(ROIs, owners, Input[0], self.spatial_scale, cells)
        groups, parts = ((sizes[0], sizes[1]) for sizes in (self.group_size, self.part_size))
        trans = None if self.no_trans else Trans
        return PartSampling(boxes, groups, parts, trans, self.trans_std, self.sample_per_part)

    def host_only(self, types: Mapping[str, Any]) -> str:
        one = types.get("ROIs_lod") or types["Input"].shape[0] == 1
        return "" if one else "no LoD or offsets assign the boxes to images"

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        p = self.parts(k, s.Input.shape, s.ROIs, s.host.all("ROIs_lod"), s.Trans)
        deformable_psroi_pooling_kernels.pooled(
            k, p, s.Input, self.output_dim, s.get("Output"), s.get("TopCount")
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        p = self.parts(k, s.Input.shape, s.ROIs, s.host.all("ROIs_lod"), s.Trans)
        if (d_Input := s.get("d_Input")) is not None:
            deformable_psroi_pooling_kernels.image_gradient(k, p, s.TopCount, s.d_Output, d_Input)
        if (d_Trans := s.get("d_Trans")) is not None:
            deformable_psroi_pooling_kernels.offset_gradient(
                k, p, s.Input, s.TopCount, s.d_Output, d_Trans
            )


def part_offsets(trans: Array, parts: Array, no_trans: bool, factor: float) -> Array:
    """Return the shift of each cell's samples: [classes, 2, cells], as fractions of a side."""
    if no_trans:
        return np.zeros((1, 2, len(parts)), trans.dtype)
    return trans.reshape(len(trans) // 2, 2, -1)[:, :, parts] * factor


def class_images(image: Array, classes: int, groups: Array) -> tuple[Array, Array]:
    """Split an image to [classes·groups, H, W, channels]; return it and the index per cell."""
    count = int(groups.max()) + 1
    split = image.reshape(classes, -1, count, *image.shape[1:])
    images = np.moveaxis(split, 1, -1).reshape(classes * count, *image.shape[1:], -1)
    return images, (np.arange(classes)[:, None] * count + groups)[..., None]


def merge_class_images(images: Array, classes: int, shape: Sequence[int]) -> Array:
    """Invert `class_images`: return the image."""
    split = images.reshape(classes, -1, *images.shape[1:])
    return np.moveaxis(split, -1, 1).reshape(tuple(shape))
