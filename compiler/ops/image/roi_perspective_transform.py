"""`roi_perspective_transform`: quadrilaterals of images, warped to rectangles of one size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, reads_lod, required, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.image import roi_perspective_transform_kernels
from compiler.ops.image.layouts import concrete_shape, require_images, require_pixels
from compiler.ops.image.roi_perspective_transform_kernels import Corners
from compiler.ops.image.roi_pool import SCALES, images_of, require_count
from compiler.ops.image.roi_pool_numpy import image_indices
from compiler.ops.math.bilinear_sampling_numpy import CORNERS
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.type_checks import differ

NEAR = 1e-4
"""Tolerance: positions nearer to an edge than this lie on it."""
FLAT = 1e-5
"""Added to a determinant so that it is not 0."""


def perspective(x: Array, y: Array, height: int, width: int) -> Array:
    """Return the nine coefficients of the map from output positions to a quadrilateral."""
    sides = np.hypot(x - np.roll(x, -1), y - np.roll(y, -1))
    tall, wide = (sides[1] + sides[3]) / 2, (sides[0] + sides[2]) / 2
    rows = max(2, height)
    columns = max(2, min(int(np.floor(wide * (rows - 1) / tall + 0.5)) + 1, width))
    (dx1, dx2, dx3), (dy1, dy2, dy3) = (
        (a[1] - a[2], a[3] - a[2], a[0] - a[1] + a[2] - a[3]) for a in (x, y)
    )
    whole = dx1 * dy2 - dx2 * dy1 + x.dtype.type(FLAT)
    right = (dx3 * dy2 - dx2 * dy3) / whole / (columns - 1)
    down = (dx1 * dy3 - dx3 * dy1) / whole / (rows - 1)
    result = [
        (
            (a[1] - a[0]) / (columns - 1) + right * a[1],
            (a[3] - a[0]) / (rows - 1) + down * a[3],
            a[0],
        )
        for a in (x, y)
    ]
    return np.array([*result[0], *result[1], right, down, 1.0])


def inside_corners(x: Array, y: Array, corners_x: Array, corners_y: Array) -> Array:
    """Return True for positions in a quadrilateral, including its edges."""
    on, crossings = np.zeros(x.shape, np.bool_), np.zeros(x.shape, np.int64)
    for start in range(4):
        end = (start + 1) % 4
        (x1, y1), (x2, y2) = ((corners_x[i], corners_y[i]) for i in (start, end))
        low, high = min(y1, y2), max(y1, y2)
        if abs(y1 - y2) < NEAR:
            column_dilation = (x > min(x1, x2) - NEAR) & (x < max(x1, x2) + NEAR)
            on |= (np.abs(y - y1) < NEAR) & (np.abs(y - y2) < NEAR) & column_dilation
            continue
        crossing = (y - y1) * (x2 - x1) / (y2 - y1) + x1
        on |= (np.abs(crossing - x) < NEAR) & (y > low - NEAR) & (y < high + NEAR)
        spans = (y > low + NEAR) & (y < high + NEAR)
        crossings += spans & (crossing > x + NEAR)
    return on | (crossings % 2 == 1)


def within(positions: Array, size: int) -> Array:
    """Return True for positions less than half an element outside an axis."""
    return np.abs(positions - (size - 1) / 2) < size / 2 - NEAR


def bilinear_taps(x: Array, y: Array, height: int, width: int) -> tuple[Array, Array]:
    """Return the flat indices of the four elements around each position, and their weights."""
    column, row = np.clip(x, 0, None), np.clip(y, 0, None)
    left = np.minimum(np.floor(column).astype(np.int64), width - 1)
    top = np.minimum(np.floor(row).astype(np.int64), height - 1)
    across = np.where(left == width - 1, 0.0, column - left)
    along = np.where(top == height - 1, 0.0, row - top)
    indices: list[Array] = []
    weights: list[Array] = []
    for step in CORNERS.split():
        down, right = int(step[0]), int(step[1])
        position = np.minimum(top + down, height - 1) * width + np.minimum(left + right, width - 1)
        indices.append(position)
        weights.append((along if down else 1 - along) * (across if right else 1 - across))
    return np.stack(indices, axis=-1), np.stack(weights, axis=-1)


class RoiPerspectiveTransform(OpDef, op="roi_perspective_transform"):
    """Out [R, C, height, width] = X warped from each quadrilateral, bilinear between elements.

    ROIs [R, 8] are corners (x, y), clockwise from the upper left, in one sequence per image. Mask
    [R, 1, height, width] is 1 where a position lies in the quadrilateral and the image; elsewhere
    Out is 0. TransformMatrix [R, 9] maps output positions to image positions. Out2InIdx and
    Out2InWeights [R, height·width, 4] are the elements that were read, and their weights.
    Reference: roi_perspective_transform_op.cc.
    """

    X = reads()
    ROIs = reads(no_grad=True)
    ROIs_lod = reads_lod("ROIs", optional=True)
    Out = writes()
    Mask = writes(shares_lod=False)
    TransformMatrix = writes(shares_lod=False)
    lod_source = "ROIs"
    Out2InIdx = writes(optional=True, shares_lod=False)
    Out2InWeights = writes(optional=True, shares_lod=False)
    spatial_scale = attr(1.0, SCALES)
    transformed_height: Attr[int] = required(int)
    transformed_width: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, ROIs = s.X, s.ROIs
        require_images(self.kind, "X", X)
        require_pixels(self.kind, "X", X)
        require_count(self.kind, "X", X, images_of(None, s.all("ROIs_lod")))
        if ROIs.rank != 2 or differ(ROIs.shape[1], 8):
            raise ShapeError(f"{self.kind}: ROIs is {ROIs}, expected four corners [R, 8]")
        height, width = self.transformed_height, self.transformed_width
        if min(height, width) < 1 or self.spatial_scale <= 0:
            actual = (height, width, self.spatial_scale)
            raise BadAttribute(f"{self.kind}: sizes and scale are {actual}, expected more than 0")
        count = ROIs.shape[0]
        mask = X.with_shape((count, 1, height, width)).with_dtype(DType.INT32)
        reads_of = X.with_shape((count, height * width, 4))
        return {
            "Out": X.with_shape((count, X.shape[1], height, width)),
            "Mask": mask,
            "TransformMatrix": X.with_shape((count, 9)),
            "Out2InIdx": reads_of.with_dtype(DType.INT32),
            "Out2InWeights": reads_of,
        }

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array, ROIs: Array, ROIs_lod: list[Array] | None) -> dict[str, Array]:
        height, width = self.transformed_height, self.transformed_width
        numbers, count = image_indices(len(ROIs), len(X), None, ROIs_lod), len(ROIs)
        matrices, masks = np.empty((count, 9)), np.empty((count, height * width), np.bool_)
        indices = np.empty((count, height * width, 4), np.int64)
        weights = np.empty(indices.shape)
        row, column = np.indices((height, width), np.float32).reshape(2, -1)
        # A test on an edge depends on the last digit: single precision, as in the reference.
        for number, corners in enumerate(ROIs.astype(np.float32) * np.float32(self.spatial_scale)):
            x, y = corners[::2], corners[1::2]
            m = perspective(x, y, height, width)
            depth = m[6] * column + m[7] * row + m[8]
            across = (m[0] * column + m[1] * row + m[2]) / depth
            along = (m[3] * column + m[4] * row + m[5]) / depth
            in_range = within(along, X.shape[2]) & within(across, X.shape[3])
            masks[number] = in_range & inside_corners(across, along, x, y)
            matrices[number] = m
            indices[number], weights[number] = bilinear_taps(across, along, *X.shape[2:])
        weights = (weights * masks[..., None]).astype(X.dtype)
        indices = np.where(masks[..., None], indices, 0)
        flat = X.reshape(*X.shape[:2], X.shape[2] * X.shape[3])
        samples = flat[numbers[:, None, None], :, indices]
        out = (samples * weights[..., None]).sum(axis=2)
        shape = (count, X.shape[1], height, width)
        return {
            "Out": np.moveaxis(out, 1, 2).reshape(shape).astype(X.dtype),
            "Mask": masks.reshape(count, 1, height, width).astype(np.int32),
            "TransformMatrix": matrices.astype(X.dtype),
            "Out2InIdx": indices.astype(np.int32),
            "Out2InWeights": weights,
        }

    def grad(
        self,
        X: Shape,
        ROIs: Array,
        ROIs_lod: list[Array] | None,
        Out2InIdx: Array,
        Out2InWeights: Array,
        d_Out: Array,
    ) -> dict[str, Any]:
        batch, channels, *sizes = concrete_shape(X)
        numbers = image_indices(len(ROIs), batch, None, ROIs_lod)
        d_x = np.zeros((batch, int(np.prod(sizes)), channels), d_Out.dtype)
        upstream = np.moveaxis(d_Out.reshape(len(ROIs), channels, Out2InIdx.shape[1]), 1, 2)
        share = upstream[:, :, None] * Out2InWeights[..., None]
        np.add.at(d_x, (numbers[:, None, None], Out2InIdx), share)
        return {"X": np.moveaxis(d_x, 2, 1).reshape(batch, channels, *sizes)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, ROIs = s.X, s.ROIs
        ROIs_lod, TransformMatrix = s.host.all("ROIs_lod"), s.get("TransformMatrix")
        height, width = self.transformed_height, self.transformed_width
        corners = Corners(ROIs, self.spatial_scale, NEAR, FLAT)
        image = owner_rows(k, ROIs_lod[-1], ROIs.shape[0]) if ROIs_lod else None
        count, positions = ROIs.shape[0], height * width
        matrix = k.scratch((count, 9), DType.FP32)
        outs = [matrix, *([] if TransformMatrix is None else [TransformMatrix])]
        roi_perspective_transform_kernels.maps(k, corners, height, width, outs)
        mask = s.get("Mask") or k.scratch((count, positions), DType.INT32)
        indices = s.get("Out2InIdx") or k.scratch((count, positions, 4), DType.INT32)
        weights = s.get("Out2InWeights") or k.scratch((count, positions, 4), X.type.dtype)
        table = (mask.reshaped((count, positions)), indices, weights)
        roi_perspective_transform_kernels.sampling_table(
            k, corners, matrix, X.shape[2:], width, table
        )
        if (Out := s.get("Out")) is not None:
            roi_perspective_transform_kernels.drawings(k, X, image, indices, weights, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        ROIs_lod = s.host.all("ROIs_lod")
        image = owner_rows(k, ROIs_lod[-1], s.ROIs.shape[0]) if ROIs_lod else None
        roi_perspective_transform_kernels.gradient(
            k, image, s.Out2InIdx, s.Out2InWeights, s.d_Out, s.d_X
        )

    def host_only(self, types: Mapping[str, Any]) -> str:
        one = types.get("ROIs_lod") or types["X"].shape[0] == 1
        return "" if one else "no LoD or offsets assign the boxes to images"
