"""psroi_pool: averages over the cells of boxes, each of its own channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Attr, Slots, required
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image import roi_pool_kernels
from compiler.ops.image.layouts import concrete_shape
from compiler.ops.image.roi_pool import RegionPooling, images_of, innermost_offsets
from compiler.ops.image.roi_pool_numpy import (
    away_from_zero,
    image_indices,
    spans,
)
from compiler.ops.type_checks import differ


def sensitive_spans(box: Array, scale: float, cells: Any, sizes: Any) -> list[Any]:
    """Return the rows and columns of `psroi_pool` cells of a box; edges are rounded first.

    Computed in float64 if the box is, else in float32.
    """
    number = np.float64 if box.dtype == np.float64 else np.float32
    left, top, right, bottom = away_from_zero(box.astype(number))
    intervals: list[Any] = []
    for first, last, count, size in (
        (top, bottom, cells[0], sizes[0]),
        (left, right, cells[1], sizes[1]),
    ):
        start = first * number(scale)
        length = max((last + number(1)) * number(scale) - start, number(0.1))
        intervals.append(spans(start, length / number(count), count, size, 0))
    return intervals


class PsroiPool(RegionPooling, op="psroi_pool"):
    """Out[r, c, i, j] = the mean of channel (c·height + i)·width + j over cell (i, j).

    X has output_channels·pooled_height·pooled_width channels: each cell reads a separate one.
    Reference: psroi_pool_op.h.
    """

    output_channels: Attr[int] = required(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        result = self.pooled(X, s.ROIs, self.output_channels, images_of(None, s.all("ROIs_lod")))
        expected = self.output_channels * self.pooled_height * self.pooled_width
        if differ(X.shape[1], expected):
            raise ShapeError(f"psroi_pool: X is {X}, expected {expected} channels")
        return result

    def numpy(self, X: Array, ROIs: Array, ROIs_lod: list[Array] | None) -> Array:
        numbers = image_indices(len(ROIs), len(X), None, ROIs_lod)
        cells = (self.pooled_height, self.pooled_width)
        out = np.zeros((len(ROIs), self.output_channels, *cells), X.dtype)
        for number, box in enumerate(ROIs):
            image = X[numbers[number]].reshape(self.output_channels, *cells, *X.shape[2:])
            rows, columns = sensitive_spans(box, self.spatial_scale, cells, X.shape[2:])
            for i, j in np.ndindex(*cells):
                cell = image[:, i, j, slice(*rows[i]), slice(*columns[j])]
                if cell.size:
                    out[number, :, i, j] = cell.mean(axis=(1, 2))
        return out

    def grad(
        self, X: Shape, ROIs: Array, ROIs_lod: list[Array] | None, d_Out: Array
    ) -> dict[str, Array]:
        shape, cells = concrete_shape(X), (self.pooled_height, self.pooled_width)
        d_x = np.zeros((shape[0], self.output_channels, *cells, *shape[2:]), d_Out.dtype)
        numbers = image_indices(len(ROIs), shape[0], None, ROIs_lod)
        for number, box in enumerate(ROIs):
            rows, columns = sensitive_spans(box, self.spatial_scale, cells, shape[2:])
            for i, j in np.ndindex(*cells):
                cell = d_x[numbers[number], :, i, j, slice(*rows[i]), slice(*columns[j])]
                cell += (d_Out[number, :, i, j] / max(cell[0].size, 1))[:, None, None]
        return {"X": d_x.reshape(shape)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(k, s.X.shape, s.ROIs, innermost_offsets(s.host.all("ROIs_lod")))
        roi_pool_kernels.sensitive_means(k, boxes, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(k, s.d_X.shape, s.ROIs, innermost_offsets(s.host.all("ROIs_lod")))
        roi_pool_kernels.sensitive_gradient(k, boxes, s.d_Out, s.d_X)
