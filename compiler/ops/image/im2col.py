"""Convolution as matrix products (im2col): filters times the gathered columns of all windows.

A block of images is copied into a zeroed frame [images, C, height, width] that holds the padding,
and the windows of each image are gathered as columns [C·kh·kw, positions]. With stride 1, a tap is
one shift of the flat frame, so gathering copies long runs, and the products at positions where a
window crosses an edge are unused; otherwise only valid positions are gathered. Blocks are small
enough to stay in the cache, and memory does not grow with the batch. One product per image keeps
the products of small images on one thread: BLAS threads wait for each other by spinning, which on
a busy machine takes a thousand times longer than the product.

Larger images are computed by rows, and so are their gradients: `compiler.ops.image.conv_tiles`.
`convolve` is carried into generated modules; it uses only its arguments and `np`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.dims import Dim, Size, product
from compiler.ir.opdef.kernel_builder import SourceBuilder
from compiler.ir.types import Array, Shape, TensorType
from compiler.ir.windows import Window
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

BLOCK_ELEMENTS = threshold(
    "image_block", 1 << 17, "elements",
    "a block of images of a convolution in NumPy works on about so many, half a second cache",
    small=512,
)  # fmt: skip
MAX_UNUSED_PRODUCTS = threshold(
    "unused_products", 24, "products for each used position",
    "a convolution in NumPy that would waste more gathers windows one by one", small=2,
)  # fmt: skip


@dataclass(frozen=True)
class Im2col:
    """A convolution as products: `images` is [N, C, H, W], `filters` counts output channels."""

    images: TensorType
    filters: Size
    groups: int
    rows: Window
    columns: Window

    @property
    def shifts(self) -> bool:
        """True if gathering shifts the whole frame."""
        if (self.rows.stride, self.columns.stride) != (1, 1):
            return False
        used = self.rows.count * self.columns.count
        idle = (self.area - used) * self.filters
        if not (isinstance(idle, int) and isinstance(used, int)):
            return True
        return idle <= MAX_UNUSED_PRODUCTS.value * used

    @property
    def grid(self) -> tuple[Size, Size]:
        """Rows and columns of the positions of an image that are gathered."""
        if self.shifts:
            return self.rows.padded, self.columns.padded
        return self.rows.count, self.columns.count

    @property
    def depth(self) -> Size:
        """Number of image elements that a window covers."""
        return self.images.shape[1] * self.rows.kernel * self.columns.kernel

    @property
    def filter_matrix(self) -> Shape:
        """Shape of all filters as a matrix, a row each; a matrix per group if there are several."""
        return self.grouped(self.filters, self.depth // self.groups)

    @property
    def area(self) -> Size:
        """Elements per channel of a padded image."""
        return self.rows.padded * self.columns.padded

    @property
    def reach(self) -> Size:
        """Distance from the first tap of a window to the last in a flat padded image."""
        down = (self.rows.kernel - 1) * self.rows.dilation * self.columns.padded
        return down + (self.columns.kernel - 1) * self.columns.dilation

    @property
    def block(self) -> int:
        """Number of images per block: the nearest power of 2, or 1 if sizes are unknown.

        Most batch sizes are multiples of a power of 2, so that blocks are full.
        """
        batch, channels, *_ = self.images.shape
        work = (self.depth + self.filters) * product(self.grid) + channels * self.area
        work = work + self.filters * self.depth
        fitting = BLOCK_ELEMENTS.value // work + 1
        if not isinstance(fitting, int):
            return 1
        block = nearest_power(fitting)
        return min(batch, block) if isinstance(batch, int) else block

    def most(self, block: int) -> Size:
        """Maximum number of images per block: `block`, or the whole batch if that is smaller."""
        batch = self.images.shape[0]
        if isinstance(batch, int) or block == 1:
            return block
        is_short = 1 // (batch // block + 1)
        return block + (batch - block) * is_short

    def grouped(self, *shape: Size) -> Shape:
        """Return a shape with the groups split from its first axis, if there are several."""
        return shape if self.groups == 1 else (self.groups, shape[0] // self.groups, *shape[1:])


def convolution_scratch(k: SourceBuilder, g: Im2col) -> str:
    """Allocate the scratch of a convolution; return the name of a tuple of it and its views.

    `frame` is flat; `inside` its sub-array [images, C, H, W] without padding; `windows` its
    overlapping views [images, C, kh, kw, …positions]; `columns` [images, C·kh·kw, positions] holds
    the gathered windows, `products` [images, filters, positions] the matrix product, of which
    `valid` is [images, filters, oh, ow]. If there are several groups, columns and products have an
    axis for them.
    """
    dtype, positions = g.images.dtype, product(g.grid)
    images, most = at_once(k, g, g.block)
    frame = k.scratch((most * g.images.shape[1] * g.area + g.reach,), dtype)
    columns = k.scratch((most, *g.grouped(g.depth, positions)), dtype)
    products = k.scratch((most, *g.grouped(g.filters, positions)), dtype)
    inside = k.at_bind(_inside(g, str(frame), images), [frame], "inside")
    windows = k.at_bind(_windows(g, str(frame), images), [frame], "windows")
    view = f"{products}.reshape{sizes_text((images, g.filters, *g.grid))}"
    valid = k.at_bind(f"{view}[:, :, :{g.rows.count}, :{g.columns.count}]", [products], "valid")
    parts = f"({frame}, {inside}, {windows}, {columns}, {products}, {valid})"
    return k.at_bind(parts, [frame, columns, products], "work")


def at_once(k: SourceBuilder, g: Im2col, block: int) -> tuple[Size, Size]:
    """Return the number of images per block: as a name bound at bind time, and as an expression."""
    most = g.most(block)
    if isinstance(most, int):
        return most, most
    return Dim.named(k.at_bind(f"min({g.images.shape[0]}, {block})", [], "images")), most


def nearest_power(number: int) -> int:
    """Return the power of 2 nearest to a non-negative number.

    >>> [nearest_power(number) for number in (0, 1, 2, 5, 6)]
    [1, 1, 2, 4, 8]
    """
    return 1 << (number * 3 // 4).bit_length()


def _inside(g: Im2col, frame: str, images: Size) -> str:
    """Return an expression for the images inside their padding."""
    shape = (images, g.images.shape[1], g.rows.padded, g.columns.padded)
    rows, columns = (f"{axis.before}:{axis.before + axis.size}" for axis in (g.rows, g.columns))
    return f"{frame}[:{product(shape)}].reshape{sizes_text(shape)}[:, :, {rows}, {columns}]"


def _windows(g: Im2col, frame: str, images: Size) -> str:
    """Return an expression for views of the flat frame by image, channel, tap and position."""
    rows, columns, width = g.rows, g.columns, g.columns.padded
    channels = g.images.shape[1]
    shape = [images, channels, rows.kernel, columns.kernel]
    steps = [channels * g.area, g.area, rows.dilation * width, columns.dilation]
    if g.shifts:
        shape, steps = [*shape, g.area], [*steps, 1]
    else:
        shape = [*shape, rows.count, columns.count]
        steps = [*steps, rows.stride * width, columns.stride]
    strides = [step * g.images.dtype.itemsize for step in steps]
    return f"np.lib.stride_tricks.as_strided({frame}, {sizes_text(shape)}, {sizes_text(strides)})"


def sizes_text(sizes: Sequence[Size]) -> str:
    """Return a shape as the text of a Python tuple."""
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"


def convolve(images: Array, filters: Array, outputs: Array, work: tuple[Array, ...]) -> None:
    """Write filters times the windows of images [N, C, H, W] to outputs, block by block."""
    frame, inside, windows, columns, products, valid = work
    block, gathered = len(inside) or 1, columns.reshape(windows.shape)
    frame.fill(0)
    for first in range(0, len(images), block):
        part = images[first : first + block]
        count = len(part)
        inside[:count] = part
        np.copyto(gathered[:count], windows[:count])
        np.matmul(filters, columns[:count], out=products[:count])
        outputs[first : first + block] = valid[:count]
