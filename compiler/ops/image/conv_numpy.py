"""Reference implementation of N-D convolution, as functions that generated modules carry.

Each image separately: the windows of the padded image are gathered as columns [C·taps, positions],
and filters times columns are the output (im2col), some taps at a time where columns are large. The
gradients are the transposed products; the image gradient scatters columns back (col2im), which is
also what a transposed convolution does.
Images are [N, C, …], filters [F, C/groups, …].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler.ir.types import Array
from compiler.ir.windows import KnownWindow

Windows: TypeAlias = Sequence[KnownWindow]
"""The windows on the axes of an image."""


def pad_image(image: Array, windows: Windows) -> Array:
    """Return an image [C, …] padded with zeros."""
    return np.pad(image, [(0, 0), *((window.before, window.after) for window in windows)])


def padded_sizes(windows: Windows) -> list[int]:
    """Return the sizes of an image including the padding."""
    return [window.size + window.before + window.after for window in windows]


def without_padding(padded: Array, windows: Windows) -> Array:
    """Return the image without its padding; a view."""
    inside = [slice(window.before, window.before + window.size) for window in windows]
    return padded[(slice(None), *inside)]


def tap_index(tap: Sequence[int], windows: Windows) -> tuple[Any, ...]:
    """Return the index in a padded image [C, …] of the elements under one tap of all windows."""
    slices: list[slice] = []
    for position, window in zip(tap, windows, strict=True):
        first = position * window.dilation
        last = first + (window.count - 1) * window.stride
        slices.append(slice(first, last + 1, window.stride))
    return (slice(None), *slices)


def tap_blocks(channels: int, windows: Windows, limit: int = 1 << 25) -> list[tuple[int, int]]:
    """Split the taps of a window into ranges whose columns have at most `limit` elements.

    >>> tap_blocks(2, [KnownWindow(10, 5, 1, 1, 2, 2, 10)], limit=40)
    [(0, 2), (2, 4), (4, 5)]
    """
    taps = int(np.prod([window.kernel for window in windows]))
    elements = max(1, channels * int(np.prod([window.count for window in windows])))
    step = max(1, limit // elements)
    return [(first, min(first + step, taps)) for first in range(0, taps, step)]


def gather_columns(
    padded: Array, windows: Windows, first: int = 0, end: int | None = None
) -> Array:
    """Gather all windows of a padded image into columns [C, taps, …positions] (im2col).

    `first` and `end` select a range of the taps.
    """
    taps, positions = [window.kernel for window in windows], [window.count for window in windows]
    end = int(np.prod(taps)) if end is None else end
    columns = np.empty((len(padded), end - first, *positions), padded.dtype)
    for number in range(first, end):
        tap = [int(place) for place in np.unravel_index(number, taps)]
        columns[:, number - first] = padded[tap_index(tap, windows)]
    return columns


def scatter_columns(columns: Array, padded: Array, windows: Windows, first: int = 0) -> None:
    """Add columns [C, taps, …positions] to their positions in a padded image (col2im).

    Their first tap is `first`.
    """
    taps = [window.kernel for window in windows]
    for number in range(columns.shape[1]):
        tap = [int(place) for place in np.unravel_index(first + number, taps)]
        padded[tap_index(tap, windows)] += columns[:, number]


def convolution(images: Array, filters: Array, windows: Windows, groups: int) -> Array:
    """Return the convolution of images with filters: [N, F, …positions]."""
    positions = [window.count for window in windows]
    rows, depth = len(filters) // groups, filters.shape[1]
    taps = filters.reshape(groups, rows, depth, -1)
    outputs = np.zeros((len(images), len(filters), *positions), images.dtype)
    for image, output in zip(images, outputs, strict=True):
        padded, total = pad_image(image, windows), output.reshape(groups, rows, -1)
        for first, end in tap_blocks(len(image), windows):
            columns = gather_columns(padded, windows, first, end)
            matrix = taps[..., first:end].reshape(groups, rows, -1)
            total += matrix @ columns.reshape(groups, matrix.shape[2], -1)
    return outputs


def convolution_image_gradient(
    d_outputs: Array, filters: Array, windows: Windows, groups: int
) -> Array:
    """Return the gradient of images: for each element, the sum over its windows."""
    rows, depth = len(filters) // groups, groups * filters.shape[1]
    taps = filters.reshape(groups, rows, filters.shape[1], -1)
    sizes, positions = ([w.size for w in windows], [w.count for w in windows])
    images = np.empty((len(d_outputs), depth, *sizes), d_outputs.dtype)
    for image, upstream in zip(images, d_outputs, strict=True):
        frame = np.zeros((depth, *padded_sizes(windows)), images.dtype)
        for first, end in tap_blocks(depth, windows):
            matrix = taps[..., first:end].reshape(groups, rows, -1)
            columns = matrix.mT @ upstream.reshape(groups, rows, -1)
            scatter_columns(columns.reshape(depth, end - first, *positions), frame, windows, first)
        image[...] = without_padding(frame, windows)
    return images


def convolution_filter_gradient(
    images: Array, d_outputs: Array, windows: Windows, groups: int
) -> Array:
    """Return the filter gradient [F, C/groups, …]: output gradient times windows, summed."""
    taps, rows = [window.kernel for window in windows], d_outputs.shape[1] // groups
    depth = images.shape[1] // groups
    total = np.zeros((groups, rows, depth, int(np.prod(taps))), images.dtype)
    for image, upstream in zip(images, d_outputs, strict=True):
        padded = pad_image(image, windows)
        for first, end in tap_blocks(len(image), windows):
            columns = gather_columns(padded, windows, first, end)
            columns = columns.reshape(groups, depth * (end - first), -1)
            products = upstream.reshape(groups, rows, -1) @ columns.mT
            total[..., first:end] += products.reshape(groups, rows, depth, end - first)
    return total.reshape(groups * rows, depth, *taps)
