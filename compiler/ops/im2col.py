"""Convolution as one product of matrices: filters times the columns of what each window sees.

A block of images is copied into a zeroed frame [C, images, height, width] that holds the padding,
and its windows are gathered as columns [C·kh·kw, places]. Where windows move by 1, a tap is one
shift of the whole flat frame, so gathering copies long runs and the products at places where a
window hangs over an edge are not used; elsewhere only real places are gathered. Blocks are so
small that the columns stay in the cache and memory does not grow with the batch.

`convolve` and the two gradients are carried into generated code; they know nothing but their
arguments and `np`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.dims import Dim, Size, product
from compiler.ir.kernel import Kernel
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.windows import Axis

BLOCK_ELEMENTS = 1 << 17
"""A block works in about this many elements: 512 KiB of floats, half an L2 cache."""

WORTH_SHIFTING = 3
"""Shift the whole frame only if it has at most this many times as many places as windows."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution: `images` is [N, C, H, W], `filters` the channels of the output."""

    images: TensorType
    filters: Size
    groups: int
    rows: Axis
    columns: Axis

    @property
    def shifts(self) -> bool:
        """True where gathering shifts the whole frame."""
        if (self.rows.stride, self.columns.stride) != (1, 1):
            return False
        area, used = self.area, self.rows.count * self.columns.count
        if not (isinstance(area, int) and isinstance(used, int)):
            return True
        return area <= WORTH_SHIFTING * used

    @property
    def grid(self) -> tuple[Size, Size]:
        """Rows and columns of the places of an image that are gathered."""
        if self.shifts:
            return self.rows.padded, self.columns.padded
        return self.rows.count, self.columns.count

    @property
    def depth(self) -> Size:
        """How many elements of an image a window covers."""
        return self.images.shape[1] * self.rows.kernel * self.columns.kernel

    @property
    def filter_matrix(self) -> Shape:
        """The shape of all filters as a matrix, one row each; a matrix a group if several."""
        return self.grouped(self.filters, self.depth // self.groups)

    @property
    def area(self) -> Size:
        """How many elements a channel of a padded image has."""
        return self.rows.padded * self.columns.padded

    @property
    def reach(self) -> Size:
        """How far the last tap of a window lies behind the first, in a flat padded image."""
        down = (self.rows.kernel - 1) * self.rows.dilation * self.columns.padded
        return down + (self.columns.kernel - 1) * self.columns.dilation

    @property
    def block(self) -> int:
        """How many images make a block: a power of 2, as most batches are; 1 if nobody can tell."""
        batch, channels, *_ = self.images.shape
        work = (self.depth + self.filters) * product(self.grid) + channels * self.area
        fitting = BLOCK_ELEMENTS // work + 1
        if not isinstance(fitting, int):
            return 1
        block = 1 << (fitting.bit_length() - 1)
        return min(batch, block) if isinstance(batch, int) else block

    @property
    def most(self) -> Size:
        """How many images a block has at most: `block`, or all there are if they are fewer."""
        batch, block = self.images.shape[0], self.block
        if isinstance(batch, int) or block == 1:
            return block
        is_short = 1 // (batch // block + 1)
        return block + (batch - block) * is_short

    @property
    def frame(self) -> Size:
        """The size of a flat frame for a block, and of what the last window hangs over."""
        return self.images.shape[1] * self.most * self.area + self.reach

    def matrix(self, rows: Size, images: Size) -> Shape:
        """The shape of a matrix with a column for each place; one a group, if there are several."""
        return self.grouped(rows, images * product(self.grid))

    def grouped(self, *shape: Size) -> Shape:
        """A shape with the groups split from its first axis, if there are several."""
        return shape if self.groups == 1 else (self.groups, shape[0] // self.groups, *shape[1:])


def workplace(k: Kernel, g: Geometry) -> str:
    """Ask for the scratch of a convolution; the name of a tuple of it and its views.

    `frame` is flat; `inside` its part [C, images, H, W] without padding; `windows` its overlapping
    views [C, kh, kw, …places]; `columns` holds them as [C·kh·kw, places], `products` what filters
    make of them, [filters, places], of which `valid` is [filters, images, oh, ow]. Columns and
    products have an axis for the groups in front, if there are several.
    """
    images = _images_at_once(k, g)
    frame = str(k.scratch((g.frame,), g.images.dtype))
    columns = _matrix(k, g, g.depth, images, "columns")
    products = _matrix(k, g, g.filters, images, "products")
    inside = k.once(_inside(g, frame, images), [], "inside")
    windows = k.once(_windows(g, frame, images), [], "windows")
    seen = f"{products}.reshape{_text((g.filters, images, *g.grid))}"
    valid = k.once(f"{seen}[:, :, :{g.rows.count}, :{g.columns.count}]", [], "valid")
    return k.once(f"({frame}, {inside}, {windows}, {columns}, {products}, {valid})", [], "work")


def _images_at_once(k: Kernel, g: Geometry) -> Size:
    """The number of images in a block, by name where it is known at binding only."""
    if isinstance(g.most, int):
        return g.most
    return Dim.named(k.once(f"min({g.images.shape[0]}, {g.block})", [], "images"))


def _matrix(k: Kernel, g: Geometry, rows: Size, images: Size, hint: str) -> str:
    """Scratch for a matrix with a column for each place of so many images."""
    if images == g.most:
        return str(k.scratch(g.matrix(rows, images), g.images.dtype))
    whole = k.scratch((product(g.matrix(rows, g.most)),), g.images.dtype)
    return k.once(f"{whole}.reshape{_text(g.matrix(rows, images))}", [whole], hint)


def _inside(g: Geometry, frame: str, images: Size) -> str:
    """The images in the middle of their padding."""
    shape = (g.images.shape[1], images, g.rows.padded, g.columns.padded)
    rows, columns = (f"{axis.before}:{axis.before + axis.size}" for axis in (g.rows, g.columns))
    return f"{frame}[:{product(shape)}].reshape{_text(shape)}[:, :, {rows}, {columns}]"


def _windows(g: Geometry, frame: str, images: Size) -> str:
    """Views of the flat frame by channel, tap and place."""
    rows, columns, width = g.rows, g.columns, g.columns.padded
    shape = [g.images.shape[1], rows.kernel, columns.kernel]
    steps = [images * g.area, rows.dilation * width, columns.dilation]
    if g.shifts:
        shape, steps = [*shape, images * g.area], [*steps, 1]
    else:
        shape = [*shape, images, rows.count, columns.count]
        steps = [*steps, g.area, rows.stride * width, columns.stride]
    strides = [step * g.images.dtype.itemsize for step in steps]
    return f"np.lib.stride_tricks.as_strided({frame}, {_text(shape)}, {_text(strides)})"


def _text(sizes: Sequence[Size]) -> str:
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"


def convolve(images: Array, filters: Array, outputs: Array, work: tuple[Array, ...]) -> None:
    """Write filters times the windows of the images [N, C, H, W] to outputs, block by block."""
    frame, inside, windows, columns, products, valid = work
    block, gathered = inside.shape[1], columns.reshape(windows.shape)
    frame.fill(0)
    for first in range(0, len(images), block or 1):
        part = images[first : first + block].transpose(1, 0, 2, 3)
        inside[:, : part.shape[1]] = part
        np.copyto(gathered, windows)
        np.matmul(filters, columns, out=products)
        made = outputs[first : first + block]
        made[...] = valid[:, : len(made)].transpose(1, 0, 2, 3)


def filter_gradient(
    images: Array,
    d_outputs: Array,
    d_filters: Array,
    work: tuple[Array, ...],
    share: Array,
) -> None:
    """Sum over all places: the output's gradient times what the window saw there.

    `share` is scratch for what one block adds to `d_filters`.
    """
    frame, inside, windows, columns, products, valid = work
    block, gathered = inside.shape[1], columns.reshape(windows.shape)
    for whole in (frame, products, d_filters):
        whole.fill(0)
    for first in range(0, len(images), block or 1):
        part = images[first : first + block].transpose(1, 0, 2, 3)
        inside[:, : part.shape[1]] = part
        valid[:, : part.shape[1]] = d_outputs[first : first + block].transpose(1, 0, 2, 3)
        valid[:, part.shape[1] :] = 0
        np.copyto(gathered, windows)
        np.matmul(products, columns.mT, out=share)
        np.add(d_filters, share, out=d_filters)


def image_gradient(
    d_outputs: Array, filters: Array, d_images: Array, work: tuple[Array, ...]
) -> None:
    """Give every element the sum over the windows that saw it: filter times output's gradient."""
    frame, inside, windows, columns, products, valid = work
    block, scattered = inside.shape[1], columns.reshape(windows.shape)
    products.fill(0)
    for first in range(0, len(d_outputs), block or 1):
        part = d_outputs[first : first + block].transpose(1, 0, 2, 3)
        valid[:, : part.shape[1]] = part
        np.matmul(filters.mT, products, out=columns)
        frame.fill(0)
        for i, j in np.ndindex(windows.shape[1:3]):
            seen = windows[:, i, j]
            np.add(seen, scattered[:, i, j], out=seen)
        made = d_images[first : first + block]
        made[...] = inside[:, : len(made)].transpose(1, 0, 2, 3)
