"""Max pooling that also returns the index of each maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required_list, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Operand, SourceBuilder
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ir.windows import PoolGeometry, Window
from compiler.ops.image import pool_kernels
from compiler.ops.image.layouts import concrete_shape, require_images
from compiler.ops.image.pool_numpy import cell_index, window_cells
from compiler.ops.image.window_attributes import WindowAttributes
from compiler.ops.math.axes import check_indices, check_optional_indices

NOWHERE = -1
"""Index of the maximum of a window without numbers: it is empty, or has NaN or nothing but -inf."""


def argmax_of_cells(images: Array, cells: Sequence[Sequence[tuple[int, int]]]) -> Array:
    """Return the flat image index of the first maximum of each cell.

    Images are [N, C, …]; the result is int32 [N, C, …positions].
    """
    shape, sizes = [len(axis) for axis in cells], images.shape[2:]
    positions = np.arange(int(np.prod(sizes)), dtype=np.int32).reshape(1, 1, *sizes)
    argmax = np.full((*images.shape[:2], *shape), NOWHERE, np.int32)
    for position in np.ndindex(*shape):
        spans = cell_index(cells, position)
        cell = images[spans]
        cell = cell.reshape(*images.shape[:2], int(np.prod(cell.shape[2:])))
        if cell.size:
            argmax[(..., *position)] = positions[spans].reshape(-1)[cell.argmax(axis=2)]
    return argmax


def take_at(images: Array, positions: Array) -> Array:
    """Return the elements of images [N, C, …] at flat image indices."""
    flat, indices = (
        array.reshape(*array.shape[:2], int(np.prod(array.shape[2:])))
        for array in (images, positions)
    )
    taken = np.take_along_axis(flat, np.maximum(indices, 0), axis=2)
    least = np.finfo(images.dtype).min
    return np.where(indices < 0, least, taken).astype(images.dtype).reshape(positions.shape)


def add_at(values: Array, positions: Array, shape: Sequence[int]) -> Array:
    """Return images of a shape [N, C, …] with values added at flat image indices."""
    batch, channels, *sizes = shape
    size = int(np.prod(sizes))
    flat = np.zeros(batch * channels * size, values.dtype)
    starts = np.arange(batch * channels)[:, None] * size
    indices = positions.reshape(batch * channels, int(np.prod(positions.shape[2:]))).astype(
        np.int64
    )
    valid = indices >= 0
    check_indices(indices[valid], size, "index of a maximum")
    np.add.at(flat, (starts + indices)[valid], values.reshape(indices.shape)[valid])
    return flat.reshape(*shape)


class MaxPoolWithIndex(OpDef):
    """Out = the maximum of X under each window, Mask = its flat index in the image.

    X is [N, C, …]; Mask is int32. A maximum is at least the lowest finite number; one that no
    element equals, or NaN, has index -1. `adaptive` splits each axis into `ksize` cells, and
    `global_pooling` takes the whole image. Reference: pool_with_index_op.cc.
    """

    image_axes: ClassVar[int] = 2
    X = reads()
    Out = writes(shares_lod=False)
    Mask = writes(shares_lod=False)
    ksize: Attr[list[int]] = required_list(int)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    global_pooling = attr(False)
    adaptive = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        require_images(self.kind, "X", X, self.image_axes + 2)
        axes = self.image_axes
        if len(self.ksize) != axes or (min(self.ksize) < 1 and not self.global_pooling):
            expected = f"expected {axes} sizes of at least 1"
            raise BadAttribute(f"{self.kind}: ksize is {self.ksize}, {expected}")
        counts = [window.count for window in self.geometry(X.shape).windows]
        out = X.with_shape((*X.shape[:2], *counts))
        return {"Out": out, "Mask": out.with_dtype(DType.INT32)}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array) -> dict[str, Array]:
        sliding = (self.ksize, self.strides, self.paddings, "EXPLICIT", False)
        adaptive = "avg" if self.adaptive else ""
        cells = window_cells(X.shape[2:], *sliding, self.global_pooling, adaptive)
        positions, least = argmax_of_cells(X, cells), np.finfo(X.dtype).min
        maxima = take_at(X, positions)
        found = np.where(maxima >= least, positions, NOWHERE).astype(np.int32)
        return {"Out": np.maximum(maxima, least), "Mask": found}

    def grad(self, X: Shape, Mask: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": add_at(d_Out, Mask, concrete_shape(X))}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        pool_kernels.largest(k, self.geometry(s.X.shape), s.X, s.Out, s.Mask)

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        check, size = k.function(check_optional_indices), product(s.X.shape[2:])
        k.line(f"{check}({s.Mask}, {size}, {self.kind!r})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        pool_kernels.largest_gradient(k, self.geometry(s.d_X.shape), s.Mask, s.d_Out, s.d_X)

    def geometry(self, X: Shape) -> PoolGeometry:
        """Return the windows of images of this shape."""
        sliding = (self.strides, self.paddings, [1] * self.image_axes)
        attributes = WindowAttributes(self.kind, *sliding, axes=self.image_axes)
        if not (self.global_pooling or self.adaptive):
            windows = attributes.over(X[2:], self.ksize)
            return PoolGeometry("NCHW", tuple(window.clipped for window in windows))
        counts = [1] * self.image_axes if self.global_pooling else self.ksize
        pairs = zip(X[2:], counts, strict=True)
        cells = tuple(Window(size, 1, 0, 1, 0, 0, count) for size, count in pairs)
        return PoolGeometry("NCHW", cells)


class MaxPool2dWithIndex(MaxPoolWithIndex, op="max_pool2d_with_index"):
    """Max pooling with indices of 2-D images [N, C, H, W]."""


class MaxPool3dWithIndex(MaxPoolWithIndex, op="max_pool3d_with_index"):
    """Max pooling with indices of volumes [N, C, D, H, W]."""

    image_axes = 3
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
