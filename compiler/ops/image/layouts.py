"""Layouts of images and filters, as types, arrays and expressions of generated code.

Functions of plain numbers and arrays also run in generated modules, which carry them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.opdef.layout_rules import Order, PermutedOp, channels_last
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, Shape, TensorType
from compiler.ir.windows import HWIO, HWOI, OIHW, is_channels_last


def concrete_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return the concrete shape of an array; usable in generated modules."""
    return tuple(shape)


def flat_image_shape(shape: Shape) -> tuple[Size, Size, Size]:
    """Return the shape of a batch of images as [N, C, positions]."""
    return shape[0], shape[1], product(shape[2:])


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
