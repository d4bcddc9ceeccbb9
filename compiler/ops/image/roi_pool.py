"""RoI pooling: boxes of images become images of one size.

ROIs [R, 4] are boxes (x1, y1, x2, y2) in the images X [N, C, H, W], in one sequence per image;
`spatial_scale` converts their coordinates to those of X.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    HostValue,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.image import roi_pool_kernels
from compiler.ops.image.layouts import concrete_shape, require_images
from compiler.ops.image.max_pool_with_index import add_at, argmax_of_cells, take_at
from compiler.ops.image.roi_pool_kernels import Boxes
from compiler.ops.image.roi_pool_numpy import (
    image_indices,
    pooled_span,
)
from compiler.ops.math.axes import check_optional_indices
from compiler.ops.sequence.offsets import count_of
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.type_checks import differ

SCALES = between(1e-6, 1e6)
"""Allowed range of elements of X per unit of box coordinates."""


def images_of(offsets: TensorType | None, lod: list[TensorType]) -> Size | None:
    """Return the number of images that offsets, or a LoD, assign boxes to; None for neither."""
    if offsets is not None:
        return offsets.numel - 1
    return count_of(lod[-1]) if lod else None


def require_count(kind: str, slot: str, images: TensorType, count: Size | None) -> None:
    """Raise ShapeError unless there are as many images as boxes are assigned to."""
    if count is not None and differ(images.shape[0], count):
        raise ShapeError(f"{kind}: {slot} is {images}, expected {count} images, as ROIs belong to")


class RegionPooling(OpDef):
    """Out [R, channels, pooled_height, pooled_width] = the content of each box, pooled in cells."""

    X = reads()
    ROIs = reads(no_grad=True)
    ROIs_lod = reads_lod("ROIs", optional=True)
    Out = writes()
    spatial_scale = attr(1.0, SCALES)
    pooled_height = attr(1)
    pooled_width = attr(1)

    def pooled(
        self, X: TensorType, ROIs: TensorType, channels: Size, images: Size | None
    ) -> TensorType:
        """Return the type of Out; raises ShapeError if X is not images or ROIs not boxes.

        `images` is the number of images that the boxes belong to, if they are assigned to images.
        """
        require_images(self.kind, "X", X)
        require_count(self.kind, "X", X, images)
        if ROIs.rank != 2 or differ(ROIs.shape[1], 4):
            raise ShapeError(f"{self.kind}: ROIs is {ROIs}, expected boxes [R, 4]")
        if min(self.pooled_height, self.pooled_width) < 1 or self.spatial_scale <= 0:
            actual = (self.pooled_height, self.pooled_width, self.spatial_scale)
            expected = "expected more than 0"
            raise BadAttribute(
                f"{self.kind}: pooled sizes and spatial_scale are {actual}, {expected}"
            )
        return X.with_shape((ROIs.shape[0], channels, self.pooled_height, self.pooled_width))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X, "ROIs": s.ROIs}

    def boxes(
        self, k: KernelBuilder, X: Shape, ROIs: DeviceOperand, *offsets: Operand | HostValue | None
    ) -> Boxes:
        """Return the boxes for kernels; the first offsets that are present define the images."""
        present = next((offset for offset in offsets if offset is not None), None)
        owners = None if present is None else owner_rows(k, present, ROIs.shape[0])
        cells = (self.pooled_height, self.pooled_width)
        return Boxes(ROIs, owners, X[0], self.spatial_scale, cells)

    def host_only(self, types: Mapping[str, Any]) -> str:
        has_offsets = any(types.get(slot) for slot in ("ROIs_lod", "RoisLod", "BatchRoINums"))
        one = "X" in types and types["X"].shape[0] == 1
        return "" if has_offsets or one else "no LoD or offsets assign the boxes to images"


class RoiPool(RegionPooling, op="roi_pool"):
    """Out = the maximum of each cell, Argmax = its flat index in the image.

    Boxes and cells are rounded to whole elements; an empty cell is 0. Reference: roi_pool_op.cc.
    """

    RoisLod = reads(optional=True, no_grad=True, on_host=True)
    Argmax = writes(optional=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        result = self.pooled(
            s.X, s.ROIs, s.X.shape[1], images_of(s.get("RoisLod"), s.all("ROIs_lod"))
        )
        return {"Out": result, "Argmax": result.with_dtype(DType.INT64)}

    def numpy(
        self, X: Array, ROIs: Array, RoisLod: Array | None, ROIs_lod: list[Array] | None
    ) -> dict[str, Array]:
        numbers = image_indices(len(ROIs), len(X), RoisLod, ROIs_lod)
        shape = (len(ROIs), X.shape[1], self.pooled_height, self.pooled_width)
        out, positions = np.zeros(shape, X.dtype), np.full(shape, -1, np.int64)
        for number, (left, top, right, bottom) in enumerate(ROIs * self.spatial_scale):
            image = X[numbers[number]][None]
            rows = pooled_span(top, bottom, self.pooled_height, X.shape[2])
            columns = pooled_span(left, right, self.pooled_width, X.shape[3])
            argmax = argmax_of_cells(image, [rows, columns])
            positions[number] = argmax[0]
            out[number] = np.where(argmax < 0, 0, take_at(image, argmax))[0]
        return {"Out": out, "Argmax": positions}

    def grad(
        self,
        X: Shape,
        ROIs: Array,
        RoisLod: Array | None,
        ROIs_lod: list[Array] | None,
        Argmax: Array,
        d_Out: Array,
    ) -> dict[str, Array]:
        shape = concrete_shape(X)
        d_x = np.zeros(shape, d_Out.dtype)
        numbers = image_indices(len(ROIs), shape[0], RoisLod, ROIs_lod)
        for number, image in enumerate(numbers):
            one = slice(number, number + 1)
            d_x[image] += add_at(d_Out[one], Argmax[one], (1, *shape[1:]))[0]
        return {"X": d_x}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(
            k, s.X.shape, s.ROIs, s.host.get("RoisLod"), innermost_offsets(s.host.all("ROIs_lod"))
        )
        roi_pool_kernels.largest(k, boxes, s.X, s.get("Out"), s.get("Argmax"))

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check, size = k.function(check_optional_indices), product(s.X.shape[2:])
        k.line(f"{check}({s.Argmax}, {size}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(
            k, s.d_X.shape, s.ROIs, s.host.get("RoisLod"), innermost_offsets(s.host.all("ROIs_lod"))
        )
        roi_pool_kernels.largest_gradient(k, boxes, s.Argmax, s.d_Out, s.d_X)


def innermost_offsets(levels: list[Operand]) -> Operand | None:
    """Return the innermost offsets of a LoD, if there is one."""
    return levels[-1] if levels else None
