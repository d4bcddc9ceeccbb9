"""`prroi_pool`: regions of interest pooled by integrals, with gradients of their edges."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import Slots, reads
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.image import prroi_pool_kernels
from compiler.ops.image.roi_pool import RegionPooling, images_of, innermost_offsets
from compiler.ops.image.roi_pool_numpy import (
    cell_edges,
    edge_gradient,
    image_indices,
    precise_weights,
)


class PrroiPool(RegionPooling, op="prroi_pool"):
    """Out = the integral over each cell, linear between elements, divided by its area.

    Nothing is rounded, and boxes have a gradient too. BatchRoINums [N] may hold the number of boxes
    per image. Reference: prroi_pool_op.h.
    """

    ROIs = reads()
    BatchRoINums = reads(optional=True, no_grad=True, on_host=True)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        BatchRoINums = s.get("BatchRoINums")
        images = images_of(None, s.all("ROIs_lod")) if BatchRoINums is None else BatchRoINums.numel
        return self.pooled(s.X, s.ROIs, s.X.shape[1], images)

    def numpy(
        self, X: Array, ROIs: Array, BatchRoINums: Array | None, ROIs_lod: list[Array] | None
    ) -> Array:
        numbers = image_indices(len(ROIs), len(X), offsets_of_counts(BatchRoINums), ROIs_lod)
        shape = (len(ROIs), X.shape[1], self.pooled_height, self.pooled_width)
        out = np.zeros(shape, X.dtype)
        for number, (left, top, right, bottom) in enumerate(ROIs * self.spatial_scale):
            rows = cell_edges(top, bottom, self.pooled_height)
            columns = cell_edges(left, right, self.pooled_width)
            area = (rows[1] - rows[0]) * (columns[1] - columns[0])
            if area > 0:
                down = precise_weights(rows, X.shape[2])
                across = precise_weights(columns, X.shape[3])
                out[number] = down @ X[numbers[number]] @ across.T / area
        return out

    def grad(
        self,
        X: Array,
        ROIs: Array,
        BatchRoINums: Array | None,
        ROIs_lod: list[Array] | None,
        Out: Array,
        d_Out: Array,
    ) -> dict[str, Array]:
        numbers = image_indices(len(ROIs), len(X), offsets_of_counts(BatchRoINums), ROIs_lod)
        d_x, d_rois = np.zeros_like(X), np.zeros_like(ROIs)
        for number, (left, top, right, bottom) in enumerate(ROIs * self.spatial_scale):
            rows = cell_edges(top, bottom, self.pooled_height)
            columns = cell_edges(left, right, self.pooled_width)
            area = (rows[1] - rows[0]) * (columns[1] - columns[0])
            if area <= 0:
                continue
            upstream, image = d_Out[number] / area, X[numbers[number]]
            down = precise_weights(rows, X.shape[2])
            across = precise_weights(columns, X.shape[3])
            d_x[numbers[number]] += down.T @ upstream @ across
            lost = (d_Out[number] * Out[number]).sum()
            by_row = np.einsum("cpw,chw->ph", upstream @ across, image)
            by_column = np.einsum("chq,chw->qw", down.T @ upstream, image)
            vertical = edge_gradient(by_row, rows, lost)
            horizontal = edge_gradient(by_column, columns, lost)
            box = (horizontal[0], vertical[0], horizontal[1], vertical[1])
            d_rois[number] = np.array(box) * self.spatial_scale
        return {"X": d_x, "ROIs": d_rois}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, ROIs = s.X, s.ROIs
        BatchRoINums = s.get("BatchRoINums")
        if BatchRoINums is not None:
            starts = f"{k.function(offsets_of_counts)}({BatchRoINums})"
            k.line(f"{k.function(image_indices)}({ROIs.shape[0]}, {X.shape[0]}, {starts}, None)")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        BatchRoINums = s.host.get("BatchRoINums")
        starts = BatchRoINums and k.on_host(offsets_of_counts, BatchRoINums)
        boxes = self.boxes(k, s.X.shape, s.ROIs, starts, innermost_offsets(s.host.all("ROIs_lod")))
        prroi_pool_kernels.integrals(k, boxes, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        BatchRoINums = s.host.get("BatchRoINums")
        starts = BatchRoINums and k.on_host(offsets_of_counts, BatchRoINums)
        boxes = self.boxes(k, s.X.shape, s.ROIs, starts, innermost_offsets(s.host.all("ROIs_lod")))
        if (d_X := s.get("d_X")) is not None:
            prroi_pool_kernels.input_gradient(k, boxes, s.d_Out, d_X)
        if (d_ROIs := s.get("d_ROIs")) is not None:
            prroi_pool_kernels.box_gradient(k, boxes, s.X, s.Out, s.d_Out, d_ROIs)


def offsets_of_counts(counts: Array | None) -> Array | None:
    """Return offsets from the number of boxes per image."""
    return None if counts is None else np.concatenate([[0], np.cumsum(counts.reshape(-1))])
