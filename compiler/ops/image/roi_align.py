"""roi_align: averages of bilinear samples in the cells of boxes."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import Slots, attr, reads
from compiler.ir.opdef.attribute_bounds import at_most
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image import roi_pool_kernels
from compiler.ops.image.layouts import concrete_shape
from compiler.ops.image.roi_pool import RegionPooling, images_of, innermost_offsets
from compiler.ops.image.roi_pool_numpy import (
    aligned_weights,
    image_indices,
)

MAX_SAMPLES = 128
"""Maximum samples per cell and axis: kernels and time grow with its square."""


class RoiAlign(RegionPooling, op="roi_align"):
    """Out = the mean of `sampling_ratio`² samples in each cell, linear between elements.

    A ratio below 1 takes as many samples as a cell has elements. Nothing is rounded, and boxes have
    a side of at least 1. Reference: roi_align_op.cc.
    """

    RoisLod = reads(optional=True, no_grad=True, on_host=True)
    sampling_ratio = attr(-1, at_most(MAX_SAMPLES))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.pooled(
            s.X, s.ROIs, s.X.shape[1], images_of(s.get("RoisLod"), s.all("ROIs_lod"))
        )

    def numpy(
        self, X: Array, ROIs: Array, RoisLod: Array | None, ROIs_lod: list[Array] | None
    ) -> Array:
        numbers = image_indices(len(ROIs), len(X), RoisLod, ROIs_lod)
        shape = (len(ROIs), X.shape[1], self.pooled_height, self.pooled_width)
        out, options = np.empty(shape, X.dtype), (self.sampling_ratio, X.dtype)
        for number, (left, top, right, bottom) in enumerate(ROIs * self.spatial_scale):
            down = aligned_weights(top, bottom, shape[2], X.shape[2], *options)
            across = aligned_weights(left, right, shape[3], X.shape[3], *options)
            out[number] = down @ X[numbers[number]] @ across.T
        return out

    def grad(
        self,
        X: Shape,
        ROIs: Array,
        RoisLod: Array | None,
        ROIs_lod: list[Array] | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        shape, options = concrete_shape(X), (self.sampling_ratio, d_Out.dtype)
        d_x = np.zeros(shape, d_Out.dtype)
        numbers = image_indices(len(ROIs), shape[0], RoisLod, ROIs_lod)
        for number, (left, top, right, bottom) in enumerate(ROIs * self.spatial_scale):
            down = aligned_weights(top, bottom, self.pooled_height, shape[2], *options)
            across = aligned_weights(left, right, self.pooled_width, shape[3], *options)
            d_x[numbers[number]] += down.T @ d_Out[number] @ across
        return {"X": d_x}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(
            k, s.X.shape, s.ROIs, s.host.get("RoisLod"), innermost_offsets(s.host.all("ROIs_lod"))
        )
        roi_pool_kernels.aligned_means(k, boxes, s.X, self.sampling_ratio, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        boxes = self.boxes(
            k, s.d_X.shape, s.ROIs, s.host.get("RoisLod"), innermost_offsets(s.host.all("ROIs_lod"))
        )
        roi_pool_kernels.aligned_gradient(k, boxes, s.d_Out, self.sampling_ratio, s.d_X)
