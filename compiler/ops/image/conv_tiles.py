"""Convolution in bounded memory: images by rows, and in backward by channels too.

What `compiler.ops.image.im2col` gathers for whole images takes many times their memory where they
are large. Here a tile, some rows of one image or a few whole small ones, is gathered for a chunk of
the channels; one product of matrices serves a tile and a chunk, so scratch is about the cache's
size, whatever the batch and the images. Rows that two tiles see are loaded twice. In backward the
gradient of all filters is the sum over tiles; a tile of several images makes the products long, and
their sums few.

`convolve_rows` and the two gradients are carried into generated code; they know nothing but their
arguments and `np`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array
from compiler.ops.image.im2col import Geometry, at_once, nearest_power, sizes_text

PLACES = 768
"""Places a tile has at least, if there are as many: products of matrices so long are fast."""

COLUMN_ELEMENTS = 1 << 18
"""What is gathered at once has about this many elements: 1 MiB of floats."""


@dataclass(frozen=True)
class Tiling:
    """A tile is `rows` rows of places in each of `images` images, and `channels` of their channels.

    `images` and `rows` are not both part of a whole: a tile of several images has all their rows.
    """

    g: Geometry
    images: int
    rows: Size
    channels: Size

    @property
    def width(self) -> Size:
        """Places in a row, idle ones included."""
        return self.g.grid[1]

    @property
    def seen_rows(self) -> Size:
        """Rows of the padded image that a tile sees."""
        return (self.rows - 1) * self.g.rows.stride + self.g.rows.span

    @property
    def area(self) -> Size:
        """Elements of a channel that a tile sees."""
        return self.seen_rows * self.g.columns.padded

    @property
    def is_whole(self) -> bool:
        """True where a tile has all rows of its images."""
        return self.rows == self.g.rows.count


def forward_tiling(g: Geometry) -> Tiling | None:
    """Tiles by rows with all channels; None where whole images are small enough, or not known."""
    width, count = g.grid[1], g.rows.count
    if not (isinstance(width, int) and isinstance(count, int) and isinstance(g.depth, int)):
        return None
    if g.block > 1 or count * width * g.depth <= COLUMN_ELEMENTS:
        return None
    elements = COLUMN_ELEMENTS * _stretch(g)
    rows = max(-(-PLACES // (3 * width)), elements // (g.depth * width), _least_rows(g))
    return None if rows >= count else Tiling(g, 1, _even(count, rows), g.images.shape[1])


def _stretch(g: Geometry) -> int:
    """How many times larger tiles are where a channel is a group: its products are small ones."""
    return 4 if g.groups > 1 and g.filters == g.groups else 1


def _least_rows(g: Geometry) -> int:
    """Rows of places below which most rows of the image would be loaded twice."""
    return 2 * g.rows.span if isinstance(g.rows.span, int) else 1


def backward_tiling(g: Geometry) -> Tiling:
    """Tiles of some rows, or of some images, and chunks of channels that fit the cache."""
    width, count, channels = g.grid[1], g.rows.count, g.images.shape[1]
    if not (isinstance(width, int) and isinstance(count, int) and isinstance(channels, int)):
        return Tiling(g, g.block, count, channels)
    rows = min(count, max(-(-PLACES // width), _least_rows(g)))
    rows = count if 2 * rows > count else _even(count, rows)
    taps = g.depth // channels
    if g.groups > 1 or not isinstance(taps, int):
        return Tiling(g, g.block if rows == count else 1, rows, channels)
    images = max(g.block, nearest_power(PLACES // (count * width))) if rows == count else 1
    fitting = max(1, COLUMN_ELEMENTS // (taps * images * rows * width))
    return Tiling(g, images, rows, _even(channels, min(channels, fitting)))


def _even(whole: int, part: int) -> int:
    """Parts of about this size, all but the last of one size."""
    count = max(1, round(whole / part))
    return -(-whole // count)


# ---- scratch ------------------------------------------------------------------------------------


def tile_work(k: SourceBuilder, t: Tiling) -> str:
    """Ask for the scratch of a tile; the name of a tuple of it and its views.

    `frame` is flat; `inside` its part [channels, images, rows, width] without side padding;
    `windows` its overlapping views [channels, kh, kw, images, …places]; `columns` [C·kh·kw, places]
    holds what they see, `products` [filters, places] what belongs to it in the output, of which
    `valid` is [filters, images, rows, width]. If there are several groups, columns and products
    have an axis for them.
    """
    g, dtype = t.g, t.g.images.dtype
    images, most = at_once(k, g, t.images)
    taps = g.rows.kernel * g.columns.kernel
    places = most * t.rows * t.width
    frame = k.scratch((t.channels * most * t.area + g.reach,), dtype)
    columns = k.scratch(g.grouped(t.channels * taps, places), dtype)
    products = k.scratch(g.grouped(g.filters, places), dtype)
    inside = k.at_bind(_inside(t, str(frame), images), [frame], "inside")
    windows = k.at_bind(_windows(t, str(frame), images), [frame], "windows")
    seen = f"{products}.reshape{sizes_text((g.filters, images, t.rows, t.width))}"
    valid = k.at_bind(f"{seen}[..., :{g.columns.count}]", [products], "valid")
    parts = f"({frame}, {inside}, {windows}, {columns}, {products}, {valid})"
    return k.at_bind(parts, [frame, columns, products], "work")


def tile_share(k: SourceBuilder, t: Tiling) -> Operand:
    """Scratch for what a tile adds to the gradient of the filters of a chunk."""
    taps = t.g.rows.kernel * t.g.columns.kernel
    return k.scratch(t.g.grouped(t.g.filters, t.channels * taps // t.g.groups), t.g.images.dtype)


def _inside(t: Tiling, frame: str, images: Size) -> str:
    shape = (t.channels, images, t.seen_rows, t.g.columns.padded)
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


# ---- what generated code carries ----------------------------------------------------------------


def load_rows(images: Array, inside: Array, top: int) -> None:
    """Copy the rows from `top` on of images [N, C, H, W] to [C, n, rows, W], zeros around them."""
    height, wanted = images.shape[2], inside.shape[2]
    first, last = max(top, 0), max(min(top + wanted, height), 0)
    held = inside[:, : len(images)]
    inside[:, len(images) :] = 0
    held[:, :, : first - top] = 0
    held[:, :, max(last - top, 0) :] = 0
    if last > first:
        held[:, :, first - top : last - top] = images[:, :, first:last].swapaxes(0, 1)


def add_rows(images: Array, inside: Array, top: int) -> None:
    """Add [C, n, rows, W] to the rows from `top` on of images [N, C, H, W]."""
    first, last = max(top, 0), min(top + inside.shape[2], images.shape[2])
    if last > first:
        target = images[:, :, first:last]
        held = inside[:, : len(images), first - top : last - top]
        np.add(target, held.swapaxes(0, 1), out=target)


def convolve_samples(samples: Array, filters: Array, outputs: Array, columns: Array) -> None:
    """Write filters times samples [N, C, …places] to outputs [N, F, places]; `columns` is spare."""
    seen = columns.reshape(samples.shape[1:])
    for image, output in zip(samples, outputs, strict=True):
        np.copyto(seen, image)
        np.matmul(filters, columns, out=output)


def product_gradient(images: Array, d_outputs: Array, d_filters: Array, share: Array) -> None:
    """Sum over images: the output's gradient [N, F, places] times the images [N, C, places].

    `share` is scratch for what an image adds.
    """
    d_filters.fill(0)
    for n in range(len(images)):
        added = share if n else d_filters
        np.matmul(d_outputs[n], images[n].T, out=added)
        if n:
            np.add(d_filters, added, out=d_filters)


def tile_places(outputs: Array, block: int, rows: int) -> list[tuple[int, int]]:
    """The first image and the first row of each tile of outputs [N, F, oh, ow]."""
    return [
        (n, first)
        for n in range(0, len(outputs), block)
        for first in range(0, outputs.shape[2], rows)
    ]


def load_products(d_outputs: Array, products: Array, valid: Array) -> None:
    """Spread the gradient of a tile's output [n, F, rows, ow] to where its products would be."""
    if (d_outputs.shape[0], d_outputs.shape[2]) != valid.shape[1:3]:
        products.fill(0)
    valid[:, : len(d_outputs), : d_outputs.shape[2]] = d_outputs.swapaxes(0, 1)


def scatter(columns: Array, windows: Array) -> None:
    """Add columns to the places of the frame that they come from, tap by tap."""
    for i, j in np.ndindex(windows.shape[1:3]):
        seen = windows[:, i, j]
        np.add(seen, columns[:, i, j], out=seen)


def convolve_rows(
    images: Array,
    filters: Array,
    outputs: Array,
    work: tuple[Array, ...],
    stride: int,
    before: int,
) -> None:
    """Write filters times the windows of the images [N, C, H, W] to outputs, rows by rows."""
    frame, inside, windows, columns, products, valid = work
    gathered, rows = columns.reshape(windows.shape), valid.shape[2]
    width = columns.shape[-1] // rows
    frame.fill(0)
    for n, first in tile_places(outputs, 1, rows):
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
    """Sum over all places: the output's gradient times what the window saw there.

    `share` is scratch for what a tile adds.
    """
    frame, inside, windows, columns, products, valid = work
    gathered, rows = columns.reshape(windows.shape), valid.shape[2]
    block, chunk, depth = inside.shape[1] or 1, inside.shape[0], columns.shape[-2]
    for whole in (frame, products, d_filters):
        whole.fill(0)
    for n, first in tile_places(d_outputs, block, rows):
        load_products(d_outputs[n : n + block, :, first : first + rows], products, valid)
        for c in range(0, images.shape[1], chunk):
            seen = images[n : n + block, c : c + chunk]
            held, start = seen.shape[1], c * depth // chunk
            used = held * depth // chunk
            load_rows(seen, inside[:held], first * stride - before)
            np.copyto(gathered[:held], windows[:held])
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
    """Give every element the sum over the windows that saw it: filter times output's gradient."""
    frame, inside, windows, columns, products, valid = work
    scattered, rows = columns.reshape(windows.shape), valid.shape[2]
    block, chunk, depth = inside.shape[1] or 1, inside.shape[0], columns.shape[-2]
    products.fill(0)
    d_images.fill(0)
    for n, first in tile_places(d_outputs, block, rows):
        load_products(d_outputs[n : n + block, :, first : first + rows], products, valid)
        for c in range(0, d_images.shape[1], chunk):
            target = d_images[n : n + block, c : c + chunk]
            held, start = target.shape[1], c * depth // chunk
            used = held * depth // chunk
            matrix = filters[..., start : start + used]
            np.matmul(matrix.mT, products, out=columns[..., :used, :])
            frame.fill(0)
            scatter(scattered[:held], windows[:held])
            add_rows(target, inside[:held], first * stride - before)
