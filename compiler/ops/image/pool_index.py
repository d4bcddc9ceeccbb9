"""Pooling that returns the index of the maximum, and its inverse.

`max_pool2d_with_index`, `max_pool3d_with_index`, `unpool`, and `spp`, a pyramid of poolings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import Attr, OpDef, attr, reads, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType, lowest
from compiler.ops.image import pool_kernels
from compiler.ops.image.pool_numpy import cell_index, pool_cells, pool_cells_gradient, window_cells
from compiler.ops.image.windows import (
    Axis,
    Sliding,
    concrete_shape,
    flat_image_shape,
    require_images,
    require_pixels,
)
from compiler.ops.math.axes import check_indices
from compiler.ops.norm.norm_kernels import compute_dtype, upcast
from compiler.ops.shared_kernels import fill, inside
from compiler.ops.type_checks import require_same_shape

NOWHERE = -1
"""Index of the maximum of an empty window."""


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

    X is [N, C, …]; Mask is int32. `adaptive` splits each axis into `ksize` cells, and
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

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        require_images(self.kind, "X", X, self.image_axes + 2)
        axes = self.image_axes
        if len(self.ksize) != axes or (min(self.ksize) < 1 and not self.global_pooling):
            expected = f"expected {axes} sizes of at least 1"
            raise BadAttribute(f"{self.kind}: ksize is {self.ksize}, {expected}")
        sliding = Sliding(self.kind, self.strides, self.paddings, [1] * axes, axes=axes)
        if self.global_pooling:
            result = [1] * axes
        elif self.adaptive:
            result = [*self.ksize]
        else:
            result = [axis.count for axis in sliding.over(X.shape[2:], self.ksize)]
        out = X.with_shape((*X.shape[:2], *result))
        return {"Out": out, "Mask": out.with_dtype(DType.INT32)}

    def infer_grad(self, X: TensorType) -> dict[str, TensorType]:
        return {"X": X}

    def numpy(self, X: Array) -> dict[str, Array]:
        sliding = (self.ksize, self.strides, self.paddings, "EXPLICIT", False)
        adaptive = "avg" if self.adaptive else ""
        cells = window_cells(X.shape[2:], *sliding, self.global_pooling, adaptive)
        positions = argmax_of_cells(X, cells)
        return {"Out": take_at(X, positions), "Mask": positions}

    def grad(self, X: Shape, Mask: Array, d_Out: Array) -> dict[str, Array]:
        return {"X": add_at(d_Out, Mask, concrete_shape(X))}

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, Mask: DeviceOperand
    ) -> None:
        pool_kernels.largest(k, self.windows(X.shape), X, Out, Mask)

    def kernel_grad(
        self, k: KernelBuilder, Mask: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        pool_kernels.largest_gradient(k, self.windows(d_X.shape), Mask, d_Out, d_X)

    def windows(self, X: Shape) -> pool_kernels.PoolGeometry:
        """Return the window geometry of the device kernels."""
        if self.global_pooling or self.adaptive:
            counts = [1] * self.image_axes if self.global_pooling else self.ksize
            pairs = zip(X[2:], counts, strict=True)
            axes = tuple(Axis(size, 1, 0, 1, 0, 0, count) for size, count in pairs)
        else:
            ones = [1] * self.image_axes
            sliding = Sliding(self.kind, self.strides, self.paddings, ones, axes=self.image_axes)
            axes = sliding.over(X[2:], self.ksize)
        return pool_kernels.PoolGeometry("NCHW", axes)


class MaxPool2dWithIndex(MaxPoolWithIndex, op="max_pool2d_with_index"):
    """Max pooling with indices of 2-D images [N, C, H, W]."""


class MaxPool3dWithIndex(MaxPoolWithIndex, op="max_pool3d_with_index"):
    """Max pooling with indices of volumes [N, C, D, H, W]."""

    image_axes = 3
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])


class Unpool(OpDef, op="unpool"):
    """Out = 0, except the elements of X at the flat positions in Indices.

    X and Indices are [N, C, h, w]; an image of Out has (h - 1)*stride - 2*padding + ksize rows.
    Reference: unpool_op.cc.
    """

    X = reads()
    Indices = reads(no_grad=True)
    Out = writes(shares_lod=False)
    ksize: Attr[list[int]] = required_list(int)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    unpooling_type: Attr[str] = required(str)

    def infer(self, X: TensorType, Indices: TensorType) -> TensorType:
        require_images(self.kind, "X", X)
        require_same_shape(self.kind, X=X, Indices=Indices)
        if self.unpooling_type != "max":
            actual = f"unpool: unpooling_type is {self.unpooling_type!r}"
            raise BadAttribute(actual, hint="expected 'max'")
        return X.with_shape((*X.shape[:2], *self.image_sizes(X.shape)))

    def image_sizes(self, shape: Shape) -> Shape:
        """The sizes of the images of Out, from the shape of X."""
        specs = zip(shape[2:], self.ksize, self.strides, self.paddings, strict=True)
        return tuple((size - 1) * step - 2 * edge + taps for size, taps, step, edge in specs)

    def numpy(self, X: Array, Indices: Array) -> Array:
        specs = zip(X.shape[2:], self.ksize, self.strides, self.paddings, strict=True)
        result = [(size - 1) * step - 2 * edge + taps for size, taps, step, edge in specs]
        expect_positions(Indices, result[0] * result[1])
        return put_at(X, Indices, (*X.shape[:2], *result))

    def grad(self, X: Array, Indices: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        expect_positions(Indices, d_Out.shape[2] * d_Out.shape[3])
        return {"X": take_at(d_Out, Indices)}

    def check_values(self, k: SourceBuilder, X: Operand, Indices: Operand) -> None:
        size = product(self.image_sizes(X.shape))
        k.line(f"{k.function(expect_positions)}({Indices}, {size})")

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Indices: DeviceOperand, Out: DeviceOperand
    ) -> None:
        fill(k, Out, 0)
        table, whole = flat_image_shape(X.shape), flat_image_shape(Out.shape)
        n, c, i = k.grid(*table)
        position = Indices.reshaped(table)[n, c, i]
        valid = inside(k, position, whole[2])
        k.store(Out.reshaped(whole), (n, c, position), X.reshaped(table)[n, c, i], valid)

    def kernel_grad(
        self, k: KernelBuilder, Indices: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        table, whole = flat_image_shape(d_X.shape), flat_image_shape(d_Out.shape)
        n, c, i = k.grid(*table)
        position = Indices.reshaped(table)[n, c, i]
        upstream = d_Out.reshaped(whole).at(
            n, c, position, where=inside(k, position, whole[2]), other=0
        )
        k.store(d_X.reshaped(table), (n, c, i), upstream)


def expect_positions(Indices: Array, size: int) -> None:
    """Raise ValueError unless the flat positions of `unpool` are in images of `size` elements."""
    check_indices(Indices.astype(np.int64), size, "unpool")


def put_at(values: Array, positions: Array, shape: Sequence[int]) -> Array:
    """Return images of a shape with values at flat positions; the last of duplicates remains."""
    images = np.zeros(tuple(shape), values.dtype)
    flat, indices = (
        array.reshape(*array.shape[:2], int(np.prod(array.shape[2:])))
        for array in (images, positions)
    )
    np.put_along_axis(flat, indices.astype(np.int64), values.reshape(indices.shape), axis=2)
    return images


class Spp(OpDef, op="spp"):
    """Out = X pooled to 1, 2², 4², … cells, concatenated: spatial pyramid pooling.

    X is [N, C, H, W], Out [N, C·(4^pyramid_height - 1)/3]. Windows of level p are the size over 2^p
    rounded up, with padding on both ends. Reference: spp_op.h.
    """

    X = reads()
    Out = writes(shares_lod=False)
    pyramid_height: Attr[int] = required(int, between(1, 15))
    pooling_type: Attr[str] = required(str)

    def infer(self, X: TensorType) -> TensorType:
        require_images(self.kind, "X", X)
        require_pixels(self.kind, "X", X)
        if self.pooling_type not in ("max", "avg"):
            actual = f"spp: pooling_type is {self.pooling_type!r}"
            raise BadAttribute(actual, hint="expected 'max' or 'avg'")
        cells = (4**self.pyramid_height - 1) // 3
        return X.with_shape((X.shape[0], product((X.shape[1], cells))))

    def numpy(self, X: Array) -> Array:
        result: list[Array] = []
        for level in range(self.pyramid_height):
            cells = pyramid_cells(X.shape[2:], 2**level)
            pooled = pool_cells(X, cells, self.pooling_type == "max", 0)
            result.append(pooled.reshape(len(X), X.shape[1] * 4**level))
        return np.concatenate(result, axis=1)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        d_x, first = np.zeros_like(X), 0
        for level in range(self.pyramid_height):
            side = 2**level
            width = X.shape[1] * side * side
            upstream = d_Out[:, first : first + width].reshape(*X.shape[:2], side, side)
            cells, largest = pyramid_cells(X.shape[2:], side), self.pooling_type == "max"
            d_x += pool_cells_gradient(X, upstream, cells, largest, 0)
            first += width
        return {"X": d_x}

    def kernel(self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand) -> None:
        largest, least = self.pooling_type == "max", lowest(X.type.dtype)
        for level, (batch, channels, *_) in enumerate([X.shape] * self.pyramid_height):
            p, (n, c, *y) = self.windows(X.shape, level), k.grid(batch, channels, *[2**level] * 2)
            reduction, other = p.taps(k), least if largest else 0
            covered = (p.under(k, y, tap) for tap in reduction.all)
            values = [
                upcast(k, X.at(n, c, *at, where=inside_window, other=other))
                for at, inside_window in covered
            ]
            pooled = reduction.fold("max" if largest else "sum", values)
            if not largest:
                pooled = pooled / p.share(k, y, compute_dtype(X.type.dtype))
            k.store(Out, self.cell(k, X.shape, level, (n, c, *y)), pooled)

    def kernel_grad(
        self, k: KernelBuilder, X: DeviceOperand, d_Out: DeviceOperand, d_X: DeviceOperand
    ) -> None:
        batch, channels, *_ = X.shape
        positions: list[DeviceOperand] = []
        for level in range(self.pyramid_height if self.pooling_type == "max" else 0):
            positions.append(k.scratch((batch, channels, *[2**level] * 2), DType.INT32))
            pool_kernels.largest(k, self.windows(X.shape, level), X, None, positions[-1])
        n, c, *x = k.grid(*X.shape)
        total: Number = 0.0
        for level in range(self.pyramid_height):
            p = self.windows(X.shape, level)
            y, covered = p.over(k, x, (0, 0))
            upstream = d_Out.at(*self.cell(k, X.shape, level, (n, c, *y)), where=covered, other=0)
            if positions:
                own = k.equal(
                    positions[level].at(n, c, *y, where=covered, other=-1), p.position(k, x)
                )
                total = k.where(own, upstream, 0) + total
            else:
                total = upstream / p.share(k, y, X.type.dtype) + total
        k.store(d_X, (n, c, *x), total)

    def windows(self, X: Shape, level: int) -> pool_kernels.PoolGeometry:
        """Return the windows of a level: adjacent, with each element in exactly one."""
        axes: list[Axis] = []
        for size in X[2:]:
            taps = (size + 2**level - 1) // 2**level
            edge = (taps * 2**level - size + 1) // 2
            axes.append(Axis(size, taps, taps, 1, edge, edge, 2**level))
        return pool_kernels.PoolGeometry("NCHW", tuple(axes))

    def cell(
        self, k: KernelBuilder, X: Shape, level: int, position: Sequence[Number]
    ) -> tuple[Number, Number]:
        """Return the index in Out of a level's cell [n, c, y, x]."""
        n, c, y, x = position
        level_start = k.size(X[1]) * ((4**level - 1) // 3)
        return n, (c * 2**level + y) * 2**level + x + level_start


def pyramid_cells(sizes: Sequence[int], side: int) -> list[list[tuple[int, int]]]:
    """Return the windows of one level, `side` per axis."""
    kernel = [-(-size // side) for size in sizes]
    padding = [(taps * side - size + 1) // 2 for taps, size in zip(kernel, sizes, strict=True)]
    cells = window_cells(sizes, kernel, kernel, padding, "EXPLICIT", False, False, "")
    return [axis[:side] for axis in cells]
