"""spp: a spatial pyramid of poolings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import product
from compiler.ir.opdef import Attr, OpDef, Slots, reads, required, writes
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
)
from compiler.ir.types import Array, DType, Shape, TensorType, lowest
from compiler.ir.windows import PoolGeometry, Window
from compiler.ops.image import pool_kernels
from compiler.ops.image.layouts import require_images, require_pixels
from compiler.ops.image.pool_kernels import (
    elements_under,
    flat_index,
    mean_divisor,
    positions_over,
    taps_of,
)
from compiler.ops.image.pool_numpy import pool_cells, pool_cells_gradient, window_cells
from compiler.ops.norm.channel_kernels import compute_dtype, upcast


class Spp(OpDef, op="spp"):
    """Out = X pooled to 1, 2², 4², … cells, concatenated: spatial pyramid pooling.

    X is [N, C, H, W], Out [N, C·(4^pyramid_height - 1)/3]. Windows of level p are the size over 2^p
    rounded up, with padding on both ends. Reference: spp_op.h.
    """

    X = reads()
    Out = writes(shares_lod=False)
    pyramid_height: Attr[int] = required(int, between(1, 15))
    pooling_type: Attr[str] = required(str)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
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
            outputs = Out[:, first : first + width].reshape(upstream.shape)
            maxima = outputs if self.pooling_type == "max" else None
            cells = pyramid_cells(X.shape[2:], side)
            d_x += pool_cells_gradient(X, maxima, upstream, cells, 0)
            first += width
        return {"X": d_x}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        largest, least = self.pooling_type == "max", lowest(X.type.dtype)
        for level, (batch, channels, *_) in enumerate([X.shape] * self.pyramid_height):
            p, (n, c, *y) = self.geometry(X.shape, level), k.grid(batch, channels, *[2**level] * 2)
            reduction, other = taps_of(k, p), least if largest else 0
            covered = (elements_under(k, p, y, tap) for tap in reduction.all)
            values = [
                upcast(k, X.at(n, c, *at, where=inside_window, other=other))
                for at, inside_window in covered
            ]
            pooled = reduction.fold("max" if largest else "sum", values)
            if largest:
                pooled = k.maximum(pooled, least)
            else:
                pooled = pooled / mean_divisor(k, p, y, compute_dtype(X.type.dtype))
            k.store(s.Out, self.cell(k, X.shape, level, (n, c, *y)), pooled)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        batch, channels, *_ = X.shape
        positions: list[DeviceOperand] = []
        for level in range(self.pyramid_height if self.pooling_type == "max" else 0):
            positions.append(k.scratch((batch, channels, *[2**level] * 2), DType.INT32))

            def value_at(n: Number, c: Number, y: Sequence[Number], level: int = level) -> Number:
                return s.Out[self.cell(k, X.shape, level, (n, c, *y))]

            geometry = self.geometry(X.shape, level)
            pool_kernels.positions_of(k, geometry, X, value_at, positions[-1])
        n, c, *x = k.grid(*X.shape)
        total: Number = 0.0
        for level in range(self.pyramid_height):
            p = self.geometry(X.shape, level)
            y, covered = positions_over(k, p, x, (0, 0))
            upstream = s.d_Out.at(*self.cell(k, X.shape, level, (n, c, *y)), where=covered, other=0)
            if positions:
                own = k.equal(
                    positions[level].at(n, c, *y, where=covered, other=-1), flat_index(k, p, x)
                )
                total = k.where(own, upstream, 0) + total
            else:
                total = upstream / mean_divisor(k, p, y, X.type.dtype) + total
        k.store(s.d_X, (n, c, *x), total)

    def geometry(self, X: Shape, level: int) -> PoolGeometry:
        """Return the windows of a level: adjacent, with each element in exactly one."""
        windows: list[Window] = []
        for size in X[2:]:
            taps = (size + 2**level - 1) // 2**level
            edge = (taps * 2**level - size + 1) // 2
            windows.append(Window(size, taps, taps, 1, edge, edge, 2**level))
        return PoolGeometry("NCHW", tuple(windows))

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
