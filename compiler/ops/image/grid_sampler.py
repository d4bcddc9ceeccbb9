"""Spatial transformer ops: `affine_grid` computes sampling positions, `grid_sampler` samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size, product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.image.layouts import require_images
from compiler.ops.math.bilinear_sampling_kernels import Corner, corners, looked, moved
from compiler.ops.math.bilinear_sampling_numpy import every, sample, sample_gradient
from compiler.ops.shared_kernels import fill
from compiler.ops.type_checks import differ, require_same_dtype, require_same_shape, shown
from compiler.support.free_memory import expect_memory

POSITION_BYTES = 128
"""Bytes that one position of a grid takes while it is computed, at most."""


def even_grid(height: int, width: int, align_corners: bool, dtype: np.dtype[Any]) -> Array:
    """Return image positions as [height·width, 3]: x, y and 1, from -1 to 1.

    They reach the ends with `align_corners`, else half a step less.
    """
    expect_memory((height, width), POSITION_BYTES)
    axes: list[Array] = []
    for count in (width, height):
        positions = np.linspace(-1, 1, count) if count > 1 else np.full(count, -1.0)
        axes.append(positions if align_corners else positions * (count - 1) / count)
    x, y = np.meshgrid(*axes)
    return np.stack([x.reshape(-1), y.reshape(-1), np.ones(x.size)], axis=1).astype(dtype)


class AffineGrid(OpDef, op="affine_grid"):
    """Output[n, y, x] = Theta[n] times (x, y, 1), at evenly spaced positions from -1 to 1.

    Theta is [N, 2, 3] and Output [N, H, W, 2]; H and W are those of the attribute, or if it is
    empty, of OutputShape [N, C, H, W]. Reference: affine_grid_op.h.
    """

    Theta = reads()
    OutputShape = reads(optional=True, no_grad=True)
    Output = writes()
    output_shape = attr_list(int)
    align_corners = attr(True)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Theta = s.Theta
        if Theta.rank != 3 or differ(Theta.shape[1], 2) or differ(Theta.shape[2], 3):
            raise ShapeError(f"affine_grid: Theta is {Theta}, expected maps [N, 2, 3]")
        sizes: list[Size] = [UNKNOWN, UNKNOWN]
        if self.output_shape or s.get("OutputShape") is None:
            if len(self.output_shape) != 4:
                actual = f"affine_grid: output_shape is {self.output_shape}"
                raise BadAttribute(actual, hint="expected [N, C, H, W]")
            sizes = [*self.output_shape[2:]]
        return Theta.with_shape((Theta.shape[0], *sizes, 2))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        d_Output = s.d_Output
        if self.output_shape:
            sizes = tuple(self.output_shape[2:])
            wanted = d_Output.with_shape((d_Output.shape[0], *sizes, 2))
            require_same_shape(self.kind + "_grad", d_Output=d_Output, grid=wanted)
        return {"Theta": d_Output.with_shape((d_Output.shape[0], 2, 3))}

    def numpy(self, Theta: Array, OutputShape: Array | None) -> Array:
        sizes: Any = self.output_shape or OutputShape
        height, width = int(sizes[2]), int(sizes[3])
        base = even_grid(height, width, self.align_corners, Theta.dtype)
        return (base @ Theta.mT).reshape(len(Theta), height, width, 2)

    def grad(self, OutputShape: Array | None, d_Output: Array) -> dict[str, Array]:
        batch, height, width, _ = d_Output.shape
        base = even_grid(height, width, self.align_corners, d_Output.dtype)
        return {"Theta": d_Output.reshape(batch, height * width, 2).mT @ base}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Theta, Output = s.Theta, s.Output
        n, y, x, axis = k.grid(*Output.shape)
        right, down = self.positions(k, y, x, Output.type.dtype)
        result = Theta[n, axis, 0] * right + Theta[n, axis, 1] * down + Theta[n, axis, 2]
        k.store(Output, (n, y, x, axis), result)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Output = s.d_Output
        n, axis, part = k.grid(*s.d_Theta.shape)
        _, *sizes, _ = d_Output.shape
        r = k.loop(product(sizes))
        y, x = k.unravel(r, sizes)
        right, down = self.positions(k, y, x, d_Output.type.dtype)
        base = k.where(k.equal(part, 0), right, k.where(k.equal(part, 1), down, 1.0))
        k.store(s.d_Theta, (n, axis, part), k.sum(d_Output[n, y, x, axis] * base, r))

    def positions(
        self, k: KernelBuilder, y: Number, x: Number, dtype: DType
    ) -> tuple[Number, Number]:
        """Return `even_grid` at one position: x and y."""
        coordinates: list[Number] = []
        for at, count in ((x, self.output_shape[3]), (y, self.output_shape[2])):
            even = k.astype(at, DType.FP64) * (2 / max(count - 1, 1)) - 1.0
            scale = 1.0 if self.align_corners else (count - 1) / count
            coordinates.append(k.astype(even * scale, dtype))
        return coordinates[0], coordinates[1]


def grid_positions(grid: Array, sizes: Sequence[int], align_corners: bool) -> tuple[Array, Array]:
    """Return fractional rows and columns of an image of these sizes for a grid of (x, y)."""
    height, width = sizes
    if align_corners:
        return (grid[..., 1] + 1) * (0.5 * (height - 1)), (grid[..., 0] + 1) * (0.5 * (width - 1))
    return ((grid[..., 1] + 1) * height - 1) * 0.5, ((grid[..., 0] + 1) * width - 1) * 0.5


class GridSampler(OpDef, op="grid_sampler"):
    """Output[n, :, i, j] = X[n] at position Grid[n, i, j] = (x, y), bilinear between elements.

    X is [N, C, H, W], Grid [N, h, w, 2] from -1 to 1, Output [N, C, h, w]; outside X is 0.
    Reference: grid_sampler_op.h.
    """

    X = reads()
    Grid = reads()
    Output = writes()
    align_corners = attr(True)
    mode = attr("bilinear")
    padding_mode = attr("zeros")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Grid = s.X, s.Grid
        require_images(self.kind, "X", X)
        require_same_dtype(self.kind, X=X, Grid=Grid)
        if Grid.rank != 4 or differ(Grid.shape[3], 2) or differ(X.shape[0], Grid.shape[0]):
            raise ShapeError(f"grid_sampler: {shown(X=X, Grid=Grid)}, expected a grid [N, h, w, 2]")
        if (self.mode, self.padding_mode) != ("bilinear", "zeros"):
            actual = f"grid_sampler: mode is {self.mode!r} and padding_mode {self.padding_mode!r}"
            raise BadAttribute(actual, hint="only 'bilinear' with 'zeros' is supported")
        return X.with_shape((*X.shape[:2], *Grid.shape[1:3]))

    def numpy(self, X: Array, Grid: Array) -> Array:
        rows, columns = grid_positions(Grid, X.shape[2:], self.align_corners)
        result = sample(np.moveaxis(X, 1, -1), every(X), rows, columns)
        return np.ascontiguousarray(np.moveaxis(result, -1, 1))

    def grad(self, X: Array, Grid: Array, d_Output: Array) -> dict[str, Array]:
        images, upstream = np.moveaxis(X, 1, -1), np.moveaxis(d_Output, 1, -1)
        rows, columns = grid_positions(Grid, X.shape[2:], self.align_corners)
        d_images, d_rows, d_columns = sample_gradient(images, every(X), rows, columns, upstream)
        less, (height, width) = (1 if self.align_corners else 0), X.shape[2:]
        steps = np.array([(width - less) * 0.5, (height - less) * 0.5], X.dtype)
        positions = np.stack([d_columns, d_rows], axis=-1) * steps
        return {"X": np.ascontiguousarray(np.moveaxis(d_images, -1, 1)), "Grid": positions}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        n, c, i, j = k.grid(*s.Output.shape)
        samples = looked(
            self.corners(k, s.Grid, (n, i, j), s.X.shape[2:]),
            lambda at: s.X.at(n, c, at.row, at.column, where=at.inside, other=0),
        )
        k.store(s.Output, (n, c, i, j), samples)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, d_Output = s.X, s.d_Output
        sizes = X.shape[2:]
        if (d_X := s.get("d_X")) is not None:
            fill(k, d_X, 0)
            n, c, i, j = k.grid(*d_Output.shape)
            for at in self.corners(k, s.Grid, (n, i, j), sizes):
                share = d_Output[n, c, i, j] * at.share
                k.add(d_X, (n, c, at.row, at.column), share, at.inside)
        if (d_Grid := s.get("d_Grid")) is not None:
            n, i, j = k.grid(*d_Grid.shape[:3])
            r = k.loop(X.shape[1])
            slopes = moved(
                self.corners(k, s.Grid, (n, i, j), sizes),
                lambda at: X.at(n, r, at.row, at.column, where=at.inside, other=0),
            )
            less = 1 if self.align_corners else 0
            for part, slope, size in zip((1, 0), slopes, sizes, strict=True):
                step = k.astype(k.size(size) - less, X.type.dtype) * 0.5
                total = k.sum(slope * d_Output[n, r, i, j], r) * step
                k.store(d_Grid, (n, i, j, part), total)

    def corners(
        self, k: KernelBuilder, Grid: DeviceOperand, at: Sequence[Number], sizes: Sequence[Size]
    ) -> list[Corner]:
        """Return the elements around a grid position, computed as in `grid_positions`."""
        positions: list[Number] = []
        for part, size in ((1, sizes[0]), (0, sizes[1])):
            share, count = Grid[(*at, part)] + 1.0, k.astype(k.size(size), Grid.type.dtype)
            ends = share * ((count - 1) * 0.5)
            positions.append(ends if self.align_corners else (share * count - 1.0) * 0.5)
        return corners(k, positions[0], positions[1], sizes)
