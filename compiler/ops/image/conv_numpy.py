"""Reference implementation of N-D convolution, as functions that generated modules carry.

Each image separately: the windows of the padded image are gathered as columns [C·taps, positions],
and filters times columns are the output (im2col), some taps at a time where columns are large. The
gradients are the transposed products; the image gradient scatters columns back (col2im), which is
also what a transposed convolution does.
Images are [N, C, …], filters [F, C/groups, …]. An axis is
(kernel, stride, dilation, before, after, count).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.ir.types import Array
from compiler.ops.image.windows import axis_padding, window_axis

Axes: TypeAlias = list[tuple[int, int, int, int, int, int]]


def window_axes(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    algorithm: str,
) -> Axes:
    """Return the window geometry of each image axis; raises ValueError if a window does not fit."""
    axes: Axes = []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        padding = axis_padding(paddings, axis, len(sizes))
        arguments = (size, taps, strides[axis], dilations[axis], padding)
        before, after, dilation, count = window_axis(*arguments, algorithm, False)
        if count < 1:
            raise ValueError(f"a window of {taps} taps does not fit on {size} elements")
        axes.append((taps, strides[axis], dilation, before, after, count))
    return axes


def pad_image(image: Array, axes: Axes) -> Array:
    """Return an image [C, …] padded with zeros."""
    return np.pad(image, [(0, 0), *((axis[3], axis[4]) for axis in axes)])


def without_padding(padded: Array, axes: Axes) -> Array:
    """Return the image without its padding; a view."""
    sizes = zip(axes, padded.shape[1:], strict=True)
    inside = [slice(axis[3], size - axis[4]) for axis, size in sizes]
    return padded[(slice(None), *inside)]


def tap_index(tap: Sequence[int], axes: Axes) -> tuple[Any, ...]:
    """Return the index in a padded image [C, …] of the elements under one tap of all windows."""
    slices: list[slice] = []
    for position, (_, stride, dilation, _, _, count) in zip(tap, axes, strict=True):
        first = position * dilation
        slices.append(slice(first, first + (count - 1) * stride + 1, stride))
    return (slice(None), *slices)


def tap_blocks(channels: int, axes: Axes, limit: int = 1 << 25) -> list[tuple[int, int]]:
    """Split the taps of a window into ranges whose columns have at most `limit` elements.

    >>> tap_blocks(2, [(5, 1, 1, 0, 0, 10)], limit=40)
    [(0, 2), (2, 4), (4, 5)]
    """
    taps = int(np.prod([axis[0] for axis in axes]))
    elements = max(1, channels * int(np.prod([axis[5] for axis in axes])))
    step = max(1, limit // elements)
    return [(first, min(first + step, taps)) for first in range(0, taps, step)]


def gather_columns(padded: Array, axes: Axes, first: int = 0, end: int | None = None) -> Array:
    """Gather all windows of a padded image into columns [C, taps, …positions] (im2col).

    `first` and `end` select a range of the taps.
    """
    taps, positions = [axis[0] for axis in axes], [axis[5] for axis in axes]
    end = int(np.prod(taps)) if end is None else end
    columns = np.empty((len(padded), end - first, *positions), padded.dtype)
    for number in range(first, end):
        tap = [int(place) for place in np.unravel_index(number, taps)]
        columns[:, number - first] = padded[tap_index(tap, axes)]
    return columns


def scatter_columns(columns: Array, padded: Array, axes: Axes, first: int = 0) -> None:
    """Add columns [C, taps, …positions] to their positions in a padded image (col2im).

    Their first tap is `first`.
    """
    taps = [axis[0] for axis in axes]
    for number in range(columns.shape[1]):
        tap = [int(place) for place in np.unravel_index(first + number, taps)]
        padded[tap_index(tap, axes)] += columns[:, number]


def convolution(images: Array, filters: Array, axes: Axes, groups: int) -> Array:
    """Return the convolution of images with filters: [N, F, …positions]."""
    positions = [axis[5] for axis in axes]
    rows, depth = len(filters) // groups, filters.shape[1]
    taps = filters.reshape(groups, rows, depth, -1)
    outputs = np.zeros((len(images), len(filters), *positions), images.dtype)
    for image, output in zip(images, outputs, strict=True):
        padded, total = pad_image(image, axes), output.reshape(groups, rows, -1)
        for first, end in tap_blocks(len(image), axes):
            columns = gather_columns(padded, axes, first, end)
            matrix = taps[..., first:end].reshape(groups, rows, -1)
            total += matrix @ columns.reshape(groups, matrix.shape[2], -1)
    return outputs


def convolution_image_gradient(
    d_outputs: Array, filters: Array, axes: Axes, groups: int, sizes: Sequence[int]
) -> Array:
    """Return the gradient of images of these sizes: for each element, the sum over its windows."""
    rows, depth = len(filters) // groups, groups * filters.shape[1]
    taps, positions = filters.reshape(groups, rows, filters.shape[1], -1), [a[5] for a in axes]
    padded = [n + axis[3] + axis[4] for n, axis in zip(sizes, axes, strict=True)]
    images = np.empty((len(d_outputs), depth, *sizes), d_outputs.dtype)
    for image, upstream in zip(images, d_outputs, strict=True):
        frame = np.zeros((depth, *padded), images.dtype)
        for first, end in tap_blocks(depth, axes):
            matrix = taps[..., first:end].reshape(groups, rows, -1)
            columns = matrix.mT @ upstream.reshape(groups, rows, -1)
            scatter_columns(columns.reshape(depth, end - first, *positions), frame, axes, first)
        image[...] = without_padding(frame, axes)
    return images


def convolution_filter_gradient(images: Array, d_outputs: Array, axes: Axes, groups: int) -> Array:
    """Return the filter gradient [F, C/groups, …]: output gradient times windows, summed."""
    taps, rows = [axis[0] for axis in axes], d_outputs.shape[1] // groups
    depth = images.shape[1] // groups
    total = np.zeros((groups, rows, depth, int(np.prod(taps))), images.dtype)
    for image, upstream in zip(images, d_outputs, strict=True):
        padded = pad_image(image, axes)
        for first, end in tap_blocks(len(image), axes):
            columns = gather_columns(padded, axes, first, end)
            columns = columns.reshape(groups, depth * (end - first), -1)
            products = upstream.reshape(groups, rows, -1) @ columns.mT
            total[..., first:end] += products.reshape(groups, rows, depth, end - first)
    return total.reshape(groups * rows, depth, *taps)
