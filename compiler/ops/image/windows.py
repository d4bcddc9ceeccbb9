"""Geometry of sliding windows on image axes, shared by convolution and pooling.

Functions of plain numbers and arrays also run in generated modules, which carry them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.opdef.layout_rules import Order, PermutedOp, channels_last
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, Shape, TensorType

OIHW, HWIO, HWOI = "OIHW", "HWIO", "HWOI"
"""Layouts of filters: that of programs, and those in which kernels of channels-last images read
filters in long runs: convolutions along filters, gradients of images along channels.
"""


class WindowGeometry:
    """Base of geometries with windows on axes: their sizes, and their groups."""

    axes: tuple[Axis, ...]
    groups: int

    @property
    def taps(self) -> list[Size]:
        """Sizes of a filter."""
        return [axis.kernel for axis in self.axes]

    @property
    def counts(self) -> list[Size]:
        """Sizes of an output."""
        return [axis.count for axis in self.axes]

    @property
    def stack(self) -> list[Size]:
        """Groups as the batch shape of matrix products, if there are several."""
        return [self.groups] if self.groups > 1 else []


@dataclass(frozen=True)
class Axis:
    """An image axis of `size` elements, padded, and the `count` window positions on it.

    The window has `kernel` taps that are `dilation` apart and moves by `stride`.
    """

    size: Size
    kernel: Size
    stride: int
    dilation: int
    before: Size
    after: Size
    count: Size

    @property
    def padded(self) -> Size:
        """Size including the padding."""
        return self.size + self.before + self.after

    @property
    def span(self) -> Size:
        """Number of elements from the first tap to the last, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def is_padless(self) -> bool:
        """True if the image has no padding."""
        return self.before == 0 and self.after == 0

    @property
    def overlaps(self) -> bool:
        """True if two windows share an element, or may."""
        return not isinstance(self.kernel, int) or self.kernel > self.stride

    @property
    def is_identity(self) -> bool:
        """True if each window covers exactly the element at its own index."""
        return (self.kernel, self.stride) == (1, 1) and self.is_padless


@dataclass(frozen=True)
class Sliding:
    """The attributes of a window that slides over image axes.

    `paddings` has one size per axis, or two: before and after. `algorithm` SAME and VALID override
    it, and SAME ignores dilations, as in the reference (conv_op.h, UpdatePaddingAndDilation).
    Raises BadAttribute if an attribute has the wrong length.
    """

    op: str
    strides: Sequence[int]
    paddings: Sequence[int]
    dilations: Sequence[int]
    algorithm: str = "EXPLICIT"
    ceil_mode: bool = False
    axes: int = 2

    def __post_init__(self) -> None:
        for name, values in (("strides", self.strides), ("dilations", self.dilations)):
            if len(values) != self.axes or min(values) < 1:
                actual, expected = list(values), f"{self.axes} sizes of at least 1"
                raise BadAttribute(f"{self.op}: {name} is {actual}, expected {expected}")
        if len(self.paddings) not in (self.axes, 2 * self.axes) or min(self.paddings) < 0:
            actual, expected = (
                list(self.paddings),
                f"{self.axes} or {2 * self.axes} sizes of at least 0",
            )
            raise BadAttribute(f"{self.op}: paddings is {actual}, expected {expected}")
        if self.algorithm not in ("EXPLICIT", "SAME", "VALID"):
            hint = "expected EXPLICIT, SAME or VALID"
            raise BadAttribute(f"{self.op}: padding_algorithm is {self.algorithm!r}", hint=hint)

    def over(self, sizes: Sequence[Size], kernel: Sequence[Size]) -> tuple[Axis, ...]:
        """Return the axes of an image; raises ShapeError if a window does not fit on one."""
        axes = tuple(self._axis(axis, sizes[axis], kernel[axis]) for axis in range(self.axes))
        for axis in axes:
            if is_less(axis.count, 1):
                raise ShapeError(
                    f"{self.op}: a window of {axis.kernel} taps, dilation {axis.dilation}, does not"
                    f" fit on an axis of {axis.padded}, padding included"
                )
        return axes

    def _axis(self, axis: int, size: Size, kernel: Size) -> Axis:
        stride, padding = self.strides[axis], axis_padding(self.paddings, axis, self.axes)
        arguments = (size, kernel, stride, self.dilations[axis], padding)
        before, after, dilation, count = window_axis(*arguments, self.algorithm, self.ceil_mode)
        return Axis(size, kernel, stride, dilation, before, after, count)


def axis_padding(paddings: Sequence[int], axis: int, axes: int) -> tuple[int, int]:
    """Return the padding before and after an axis, from one size per axis or two."""
    if len(paddings) == axes:
        return paddings[axis], paddings[axis]
    return paddings[2 * axis], paddings[2 * axis + 1]


def window_axis(
    size: Any,
    kernel: Any,
    stride: int,
    dilation: int,
    padding: tuple[int, int],
    algorithm: str,
    ceil_mode: bool,
) -> tuple[Any, Any, int, Any]:
    """Return padding before, after, the effective dilation, and the number of window positions."""
    if algorithm == "SAME":
        count = (size + stride - 1) // stride
        total = same_padding(size, kernel, stride, count)
        return total // 2, total - total // 2, 1, count
    before, after = (0, 0) if algorithm == "VALID" else padding
    free = size + before + after - dilation * (kernel - 1) - 1
    rounded = free + stride - 1 if ceil_mode else free
    if isinstance(free, int) and isinstance(rounded, int) and -stride < rounded < 0:
        # The reference truncates the division (pool_op.h, conv_op.h): one window exceeds the axis.
        return before, after - free, dilation, 1
    return before, after, dilation, rounded // stride + 1


def same_padding(size: Any, kernel: Any, stride: int, count: Any) -> Any:
    """Return max((count - 1)*stride + kernel - size, 0) for symbolic sizes too."""
    total = (count - 1) * stride + kernel - size
    if isinstance(total, int):
        return max(total, 0)
    if isinstance(kernel, int) and kernel < stride:
        return total * ((total + stride) // stride)
    return total


def check_windows_at_bind(k: SourceBuilder, op: str, axes: Sequence[Axis]) -> None:
    """Emit bind-time checks that the window fits on axes of symbolic size."""
    for axis in (axis for axis in axes if not isinstance(axis.count, int)):
        expression = f"{k.function(require_window_count)}({op!r}, {axis.count}, {axis.kernel})"
        k.at_bind(expression, [], "places")


def require_window_count(op: str, count: int, kernel: int) -> int:
    """Return the number of window positions; raises ValueError if there is none."""
    if count < 1:
        raise ValueError(f"{op}: a window of {kernel} taps does not fit")
    return count


def concrete_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return the concrete shape of an array; usable in generated modules."""
    return tuple(shape)


def flat_image_shape(shape: Shape) -> tuple[Size, Size, Size]:
    """Return the shape of a batch of images as [N, C, positions]."""
    return shape[0], shape[1], product(shape[2:])


def is_channels_last(data_format: str) -> bool:
    """True for layouts whose last axis is the channels; in others they follow the batch."""
    return data_format in ("NHWC", "NDHWC")


def permuted_layout(name: str, layout: str, order: Order, *slots: str) -> PermutedOp | None:
    """Return an op permuted to channels-last images; None for other orders.

    `name` is the layout attribute, `slots` hold the images.
    """
    if is_channels_last(layout) or order != channels_last(len(order)):
        return None
    return PermutedOp(frozenset(slots), {name: "NDHWC" if len(order) == 5 else "NHWC"})


def channels_first(data_format: str, shape: Shape) -> Shape:
    """Return the shape of a batch of images as [N, C, …]."""
    if not is_channels_last(data_format):
        return shape
    batch, *image, channels = shape
    return (batch, channels, *image)


def in_layout(data_format: str, shape: Shape) -> Shape:
    """Return the shape [N, C, …] in the layout `data_format`."""
    if not is_channels_last(data_format):
        return shape
    batch, channels, *image = shape
    return (batch, *image, channels)


def filter_axes(filter_format: str, rank: int) -> tuple[int, ...]:
    """Return the axes of filters in the order [F, C, taps…].

    >>> filter_axes("OIHW", 4), filter_axes("HWIO", 4), filter_axes("HWOI", 4)
    ((0, 1, 2, 3), (3, 2, 0, 1), (2, 3, 0, 1))
    """
    if filter_format not in (OIHW, HWIO, HWOI):
        raise BadAttribute(f"'filter_format' is {filter_format!r:.40}, expected OIHW, HWIO or HWOI")
    if filter_format == "OIHW":
        return tuple(range(rank))
    matrix = (rank - 1, rank - 2) if filter_format == HWIO else (rank - 2, rank - 1)
    return (*matrix, *range(rank - 2))


def filters_first(filter_format: str, shape: Shape) -> Shape:
    """Return the shape of filters as [F, C, taps…]."""
    return tuple(shape[axis] for axis in filter_axes(filter_format, len(shape)))


def view_filters_first(filter_format: str, filters: Array) -> Array:
    """Return filters as [F, C, taps…]; a view."""
    return filters.transpose(filter_axes(filter_format, filters.ndim))


def view_channels_first(data_format: str, array: Array) -> Array:
    """Return a batch of images as [N, C, …]; a view."""
    return np.moveaxis(array, -1, 1) if is_channels_last(data_format) else array


def to_layout(data_format: str, images: Array) -> Array:
    """Return images [N, C, …] in the layout of the op's tensors, contiguous."""
    last = is_channels_last(data_format)
    return np.ascontiguousarray(np.moveaxis(images, 1, -1) if last else images)


def channels_first_expression(k: SourceBuilder, data_format: str, images: Operand) -> str:
    """Return an expression for a batch of images viewed as [N, C, …]."""
    if not is_channels_last(data_format):
        return str(images)
    rank = images.type.rank
    order = (0, rank - 1, *range(1, rank - 1))
    return k.at_bind(f"{images}.transpose{order}", [images], "nchw")


def require_pixels(kind: str, slot: str, images: TensorType) -> None:
    """Raise ShapeError for images [N, C, …] without elements to sample."""
    if any(is_less(size, 1) for size in images.shape[2:]):
        raise ShapeError(f"{kind}: {slot} is {images}, expected images of one element or more")


def require_images(op: str, slot: str, images: TensorType, rank: int = 4) -> None:
    """Raise ShapeError unless an input has the rank and dtype of a batch of images."""
    if images.rank != rank or not images.dtype.is_float:
        raise ShapeError(
            f"{op}: {slot} is {images}, expected {rank} axes of floats: a batch of images"
        )


def require_filters(op: str, filters: TensorType, rank: int = 4) -> None:
    """Raise ShapeError unless Filter has the rank and dtype of images, and elements."""
    require_images(op, "Filter", filters, rank)
    if any(is_less(size, 1) for size in filters.shape):
        raise ShapeError(f"{op}: Filter is {filters}, expected filters with elements")
