"""Looking at pictures through a grid: `affine_grid` lays it, `grid_sampler` looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.checks import differ, require_same_dtype, shown
from compiler.ops.image.windows import require_images
from compiler.ops.math.bilinear import every, sample, sample_gradient


def even_grid(height: int, width: int, align_corners: bool, dtype: np.dtype[Any]) -> Array:
    """The places of a picture as [height·width, 3]: x, y and 1, from -1 to 1.

    They reach the ends with `align_corners`, else half a step less.
    """
    axes: list[Array] = []
    for count in (width, height):
        places = np.linspace(-1, 1, count) if count > 1 else np.full(count, -1.0)
        axes.append(places if align_corners else places * (count - 1) / count)
    x, y = np.meshgrid(*axes)
    return np.stack([x.reshape(-1), y.reshape(-1), np.ones(x.size)], axis=1).astype(dtype)


class AffineGrid(OpDef, op="affine_grid"):
    """Output[n, y, x] = Theta[n] times (x, y, 1), at even places from -1 to 1.

    Theta is [N, 2, 3] and Output [N, H, W, 2]; H and W are those of OutputShape [N, C, H, W], or of
    the attribute. Reference: affine_grid_op.h.
    """

    Theta = reads()
    OutputShape = reads(optional=True, no_grad=True)
    Output = writes()
    output_shape = attr(list[int]())
    align_corners = attr(True)

    def infer(self, Theta: TensorType, OutputShape: TensorType | None) -> TensorType:
        if Theta.rank != 3 or differ(Theta.shape[1], 2) or differ(Theta.shape[2], 3):
            raise ShapeError(f"affine_grid: Theta is {Theta}, expected maps [N, 2, 3]")
        sizes: list[Size] = [UNKNOWN, UNKNOWN]
        if OutputShape is None:
            if len(self.output_shape) != 4:
                found = f"affine_grid: output_shape is {self.output_shape}"
                raise BadAttribute(found, hint="expected [N, C, H, W]")
            sizes = [*self.output_shape[2:]]
        return Theta.with_shape((Theta.shape[0], *sizes, 2))

    def infer_grad(self, d_Output: TensorType) -> dict[str, TensorType]:
        return {"Theta": d_Output.with_shape((d_Output.shape[0], 2, 3))}

    def numpy(self, Theta: Array, OutputShape: Array | None) -> Array:
        sizes = self.output_shape if OutputShape is None else OutputShape
        height, width = int(sizes[2]), int(sizes[3])
        base = even_grid(height, width, self.align_corners, Theta.dtype)
        return (base @ Theta.mT).reshape(len(Theta), height, width, 2)

    def grad(self, OutputShape: Array | None, d_Output: Array) -> dict[str, Array]:
        batch, height, width, _ = d_Output.shape
        base = even_grid(height, width, self.align_corners, d_Output.dtype)
        return {"Theta": d_Output.reshape(batch, -1, 2).mT @ base}


def grid_places(grid: Array, sizes: Sequence[int], align_corners: bool) -> tuple[Array, Array]:
    """Rows and columns of a picture of these sizes, as fractions, for a grid of (x, y)."""
    height, width = sizes
    if align_corners:
        return (grid[..., 1] + 1) * (0.5 * (height - 1)), (grid[..., 0] + 1) * (0.5 * (width - 1))
    return ((grid[..., 1] + 1) * height - 1) * 0.5, ((grid[..., 0] + 1) * width - 1) * 0.5


class GridSampler(OpDef, op="grid_sampler"):
    """Output[n, :, i, j] = X[n] at the place Grid[n, i, j] = (x, y), linear between neighbours.

    X is [N, C, H, W], Grid [N, h, w, 2] from -1 to 1, Output [N, C, h, w]; outside X is 0.
    Reference: grid_sampler_op.h.
    """

    X = reads()
    Grid = reads()
    Output = writes()
    align_corners = attr(True)
    mode = attr("bilinear")
    padding_mode = attr("zeros")

    def infer(self, X: TensorType, Grid: TensorType) -> TensorType:
        require_images(self.kind, "X", X)
        require_same_dtype(self.kind, X=X, Grid=Grid)
        if Grid.rank != 4 or differ(Grid.shape[3], 2) or differ(X.shape[0], Grid.shape[0]):
            raise ShapeError(f"grid_sampler: {shown(X=X, Grid=Grid)}, expected a grid [N, h, w, 2]")
        if (self.mode, self.padding_mode) != ("bilinear", "zeros"):
            found = f"grid_sampler: mode is {self.mode!r} and padding_mode {self.padding_mode!r}"
            raise BadAttribute(found, hint="only 'bilinear' with 'zeros' is there")
        return X.with_shape((*X.shape[:2], *Grid.shape[1:3]))

    def numpy(self, X: Array, Grid: Array) -> Array:
        rows, columns = grid_places(Grid, X.shape[2:], self.align_corners)
        made = sample(np.moveaxis(X, 1, -1), every(X), rows, columns)
        return np.ascontiguousarray(np.moveaxis(made, -1, 1))

    def grad(self, X: Array, Grid: Array, d_Output: Array) -> dict[str, Array]:
        images, above = np.moveaxis(X, 1, -1), np.moveaxis(d_Output, 1, -1)
        rows, columns = grid_places(Grid, X.shape[2:], self.align_corners)
        d_images, d_rows, d_columns = sample_gradient(images, every(X), rows, columns, above)
        less, (height, width) = (1 if self.align_corners else 0), X.shape[2:]
        steps = np.array([(width - less) * 0.5, (height - less) * 0.5], X.dtype)
        places = np.stack([d_columns, d_rows], axis=-1) * steps
        return {"X": np.ascontiguousarray(np.moveaxis(d_images, -1, 1)), "Grid": places}
