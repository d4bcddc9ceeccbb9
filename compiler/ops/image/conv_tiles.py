"""Convolution in bounded memory: tiles of rows, and in backward chunks of channels too.

Gathering whole images as `compiler.ops.image.im2col` does takes many times their memory where they
are large. Here a tile, some rows of one image or several small whole images, is gathered for a
chunk of the channels; one matrix product computes a tile and a chunk, so scratch is about the size
of the cache, independent of batch and image size. Rows in two tiles are loaded twice. In backward
the gradient of all filters is the sum over tiles; a tile of several images makes the products long
and their sums few.

`convolve_rows` and the two gradients are carried into generated modules; they use only their
arguments and `np`.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array
from compiler.ops.image.im2col import Im2col, at_once, nearest_power, sizes_text
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

MIN_TILE_POSITIONS = threshold(
    "tile_positions", 768, "positions",
    "a tile of a convolution in NumPy has as many, if there are so many", small=8,
)  # fmt: skip
COLUMN_ELEMENTS = threshold(
    "column_elements", 1 << 18, "elements",
    "a convolution in NumPy gathers about so many at once, 1 MiB of floats", small=64,
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """A tile: `rows` rows of positions in each of `images` images, for `channels` channels.

    At most one of `images` and `rows` is partial: a tile of several images has all their rows.
    """

    g: Im2col
    images: int
    rows: Size
    channels: Size

    @property
    def width(self) -> Size:
        """Positions per row, including unused ones."""
        return self.g.grid[1]

    @property
    def covered_rows(self) -> Size:
        """Rows of the padded image that a tile covers."""
        return (self.rows - 1) * self.g.rows.stride + self.g.rows.span

    @property
    def area(self) -> Size:
        """Elements per channel that a tile covers."""
        return self.covered_rows * self.g.columns.padded

    @property
    def is_whole(self) -> bool:
        """True if a tile has all rows of its images."""
        return self.rows == self.g.rows.count


def forward_tiling(g: Im2col) -> Tiling | None:
    """Return tiles of rows with all channels; None if whole images fit or sizes are unknown."""
    width, count = g.grid[1], g.rows.count
    if not (isinstance(width, int) and isinstance(count, int) and isinstance(g.depth, int)):
        return None
    if g.block > 1 or count * width * g.depth <= COLUMN_ELEMENTS.value:
        return None
    elements = COLUMN_ELEMENTS.value * _stretch(g)
    least = max(-(-MIN_TILE_POSITIONS.value // (3 * width)), _least_rows(g))
    rows = max(least, elements // (g.depth * width))
    return None if rows >= count else Tiling(g, 1, _even(count, rows), g.images.shape[1])


def _stretch(g: Im2col) -> int:
    """Factor by which tiles are larger in depthwise convolution, whose products are small."""
    return 4 if g.groups > 1 and g.filters == g.groups else 1


def _least_rows(g: Im2col) -> int:
    """Rows of positions below which most image rows would be loaded twice."""
    return 2 * g.rows.span if isinstance(g.rows.span, int) else 1


def backward_tiling(g: Im2col) -> Tiling:
    """Return tiles of rows or of several images, with chunks of channels that fit the cache."""
    width, count, channels = g.grid[1], g.rows.count, g.images.shape[1]
    if not (isinstance(width, int) and isinstance(count, int) and isinstance(channels, int)):
        return Tiling(g, g.block, count, channels)
    rows = min(count, max(-(-MIN_TILE_POSITIONS.value // width), _least_rows(g)))
    rows = count if 2 * rows > count else _even(count, rows)
    taps = g.depth // channels
    if g.groups > 1 or not isinstance(taps, int):
        return Tiling(g, g.block if rows == count else 1, rows, channels)
    fewest = nearest_power(MIN_TILE_POSITIONS.value // (count * width))
    images = max(g.block, fewest) if rows == count else 1
    fitting = max(1, COLUMN_ELEMENTS.value // (taps * images * rows * width))
    return Tiling(g, images, rows, _even(channels, min(channels, fitting)))


def _even(whole: int, part: int) -> int:
    """Return the size of even parts near `part`; only the last may be smaller."""
    count = max(1, round(whole / part))
    return -(-whole // count)


# ---- scratch ------------------------------------------------------------------------------------


def tile_scratch(k: SourceBuilder, t: Tiling) -> str:
    """Allocate the scratch of a tile; return the name of a tuple of it and its views.

    `frame` is flat; `inside` its sub-array [channels, images, rows, width] without side padding;
    `windows` its overlapping views [channels, kh, kw, images, …positions]; `columns` [C·kh·kw,
    positions] holds the gathered windows, `products` [filters, positions] the matrix product, of
    which `valid` is [filters, images, rows, width]. If there are several groups, columns and
    products have an axis for them.
    """
    g, dtype = t.g, t.g.images.dtype
    images, most = at_once(k, g, t.images)
    taps = g.rows.kernel * g.columns.kernel
    positions = most * t.rows * t.width
    frame = k.scratch((t.channels * most * t.area + g.reach,), dtype)
    columns = k.scratch(g.grouped(t.channels * taps, positions), dtype)
    products = k.scratch(g.grouped(g.filters, positions), dtype)
    inside = k.at_bind(_inside(t, str(frame), images), [frame], "inside")
    windows = k.at_bind(_windows(t, str(frame), images), [frame], "windows")
    view = f"{products}.reshape{sizes_text((g.filters, images, t.rows, t.width))}"
    valid = k.at_bind(f"{view}[..., :{g.columns.count}]", [products], "valid")
    parts = f"({frame}, {inside}, {windows}, {columns}, {products}, {valid})"
    return k.at_bind(parts, [frame, columns, products], "work")


def tile_partial(k: SourceBuilder, t: Tiling) -> Operand:
    """Allocate scratch for the contribution of a tile to the filter gradient of a chunk."""
    taps = t.g.rows.kernel * t.g.columns.kernel
    return k.scratch(t.g.grouped(t.g.filters, t.channels * taps // t.g.groups), t.g.images.dtype)


def _inside(t: Tiling, frame: str, images: Size) -> str:
    shape = (t.channels, images, t.covered_rows, t.g.columns.padded)
    first, size = t.g.columns.before, t.g.columns.size
    whole = f"{frame}[:{product(shape)}].reshape{sizes_text(shape)}"
    return f"{whole}[..., {first}:{first + size}]"


def _windows(t: Tiling, frame: str, images: Size) -> str:
    rows, columns = t.g.rows, t.g.columns
    width = columns.padded
    shape = [t.channels, rows.kernel, columns.kernel, images]
    steps = [images * t.area, rows.dilation * width, columns.dilation, t.area]
    if t.g.shifts:
        shape, steps = [*shape, t.rows * width], [*steps, 1]
    else:
        shape = [*shape, t.rows, columns.count]
        steps = [*steps, rows.stride * width, columns.stride]
    strides = [step * t.g.images.dtype.itemsize for step in steps]
    return f"np.lib.stride_tricks.as_strided({frame}, {sizes_text(shape)}, {sizes_text(strides)})"


# ---- functions of generated modules -------------------------------------------------------------


def load_rows(images: Array, inside: Array, top: int) -> None:
    """Copy rows of images [N, C, H, W] starting at `top` to [C, n, rows, W], padded with zeros."""
    height, count = images.shape[2], inside.shape[2]
    first, last = max(top, 0), max(min(top + count, height), 0)
    block = inside[:, : len(images)]
    inside[:, len(images) :] = 0
    block[:, :, : first - top] = 0
    block[:, :, max(last - top, 0) :] = 0
    if last > first:
        block[:, :, first - top : last - top] = images[:, :, first:last].swapaxes(0, 1)


def add_rows(images: Array, inside: Array, top: int) -> None:
    """Add [C, n, rows, W] to the rows of images [N, C, H, W] that start at `top`."""
    first, last = max(top, 0), min(top + inside.shape[2], images.shape[2])
    if last > first:
        target = images[:, :, first:last]
        block = inside[:, : len(images), first - top : last - top]
        np.add(target, block.swapaxes(0, 1), out=target)


def convolve_samples(samples: Array, filters: Array, outputs: Array, columns: Array) -> None:
    """Write filters times samples [N, C, …] to outputs [N, F, positions]; `columns` is scratch."""
    view = columns.reshape(samples.shape[1:])
    for image, output in zip(samples, outputs, strict=True):
        np.copyto(view, image)
        np.matmul(filters, columns, out=output)


def product_gradient(images: Array, d_outputs: Array, d_filters: Array, share: Array) -> None:
    """Sum over images: output gradient [N, F, positions] times images [N, C, positions].

    `share` is scratch for the contribution of one image.
    """
    d_filters.fill(0)
    for n in range(len(images)):
        added = share if n else d_filters
        np.matmul(d_outputs[n], images[n].T, out=added)
        if n:
            np.add(d_filters, added, out=d_filters)


def tile_origins(outputs: Array, block: int, rows: int) -> list[tuple[int, int]]:
    """Return the first image and the first row of each tile of outputs [N, F, oh, ow]."""
    return [
        (n, first)
        for n in range(0, len(outputs), block)
        for first in range(0, outputs.shape[2], rows)
    ]


def load_products(d_outputs: Array, products: Array, valid: Array) -> None:
    """Scatter the output gradient of a tile, [n, F, rows, ow], to the positions of its products."""
    if (d_outputs.shape[0], d_outputs.shape[2]) != valid.shape[1:3]:
        products.fill(0)
    valid[:, : len(d_outputs), : d_outputs.shape[2]] = d_outputs.swapaxes(0, 1)


def scatter(columns: Array, windows: Array) -> None:
    """Add columns to the frame positions that they were gathered from, tap by tap."""
    for i, j in np.ndindex(windows.shape[1:3]):
        view = windows[:, i, j]
        np.add(view, columns[:, i, j], out=view)


def convolve_rows(
    images: Array,
    filters: Array,
    outputs: Array,
    work: tuple[Array, ...],
    stride: int,
    before: int,
) -> None:
    """Write filters times the windows of images [N, C, H, W] to outputs, tile by tile."""
    frame, inside, windows, columns, products, valid = work
    gathered, rows = columns.reshape(windows.shape), valid.shape[2]
    width = columns.shape[-1] // rows
    frame.fill(0)
    for n, first in tile_origins(outputs, 1, rows):
        count = min(rows, outputs.shape[2] - first)
        used = count * width
        load_rows(images[n : n + 1], inside, first * stride - before)
        np.copyto(gathered, windows)
        np.matmul(filters, columns[..., :used], out=products[..., :used])
        outputs[n, :, first : first + count] = valid[:, 0, :count]


def filter_gradient_tiles(
    images: Array,
    d_outputs: Array,
    d_filters: Array,
    work: tuple[Array, ...],
    share: Array,
    stride: int,
    before: int,
) -> None:
    """Compute the filter gradient tile by tile: output gradient times windows, summed.

    `share` is scratch for the contribution of one tile.
    """
    frame, inside, windows, columns, products, valid = work
    gathered, rows = columns.reshape(windows.shape), valid.shape[2]
    block, chunk, depth = inside.shape[1] or 1, inside.shape[0], columns.shape[-2]
    for whole in (frame, products, d_filters):
        whole.fill(0)
    for n, first in tile_origins(d_outputs, block, rows):
        load_products(d_outputs[n : n + block, :, first : first + rows], products, valid)
        for c in range(0, images.shape[1], chunk):
            view = images[n : n + block, c : c + chunk]
            batch, start = view.shape[1], c * depth // chunk
            used = batch * depth // chunk
            load_rows(view, inside[:batch], first * stride - before)
            np.copyto(gathered[:batch], windows[:batch])
            target = d_filters[..., start : start + used]
            added = target if n == first == 0 else share[..., :used]
            np.matmul(products, columns[..., :used, :].mT, out=added)
            if added is not target:
                np.add(target, added, out=target)


def image_gradient_tiles(
    d_outputs: Array,
    filters: Array,
    d_images: Array,
    work: tuple[Array, ...],
    stride: int,
    before: int,
) -> None:
    """Compute the image gradient tile by tile: filters times output gradient, summed."""
    frame, inside, windows, columns, products, valid = work
    scattered, rows = columns.reshape(windows.shape), valid.shape[2]
    block, chunk, depth = inside.shape[1] or 1, inside.shape[0], columns.shape[-2]
    products.fill(0)
    d_images.fill(0)
    for n, first in tile_origins(d_outputs, block, rows):
        load_products(d_outputs[n : n + block, :, first : first + rows], products, valid)
        for c in range(0, d_images.shape[1], chunk):
            target = d_images[n : n + block, c : c + chunk]
            batch, start = target.shape[1], c * depth // chunk
            used = batch * depth // chunk
            matrix = filters[..., start : start + used]
            np.matmul(matrix.mT, products, out=columns[..., :used, :])
            frame.fill(0)
            scatter(scattered[:batch], windows[:batch])
            add_rows(target, inside[:batch], first * stride - before)
