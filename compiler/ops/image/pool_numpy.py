"""Loops of pooling, as functions that generated modules carry.

The fast ones iterate over the taps of the window: one operation takes the same tap of all windows.
The `cells` ones iterate window by window; they are the reference implementation and handle windows
of uneven size. Images and outputs are [N, C, …], of any number of axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ir.windows import KnownWindow
from compiler.ops.image.window_attributes import axis_padding, axis_window


def window_cells(
    sizes: Sequence[int],
    ksize: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
    ceil_mode: bool,
    whole: bool,
    adaptive: str,
) -> list[list[tuple[int, int]]]:
    """Return start and stop of each window on every axis.

    The `whole` image is one window. `adaptive` "avg" splits each axis into `ksize` cells, "max" has
    `ksize` windows of that size, "" has as many as fit.
    """
    cells: list[list[tuple[int, int]]] = []
    for axis, size in enumerate(sizes):
        kernel, stride = (size, 1) if whole else (ksize[axis], strides[axis])
        if whole or adaptive == "avg":
            count = 1 if whole else kernel
            split = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
            cells.append(split)
            continue
        padding = axis_padding(paddings, axis, len(sizes))
        window = axis_window(size, kernel, stride, 1, padding, algorithm, ceil_mode)
        starts = [i * stride for i in range(kernel)]
        if not adaptive:
            starts = [i * stride - window.before for i in range(window.count)]
        cells.append([covered(start, start + kernel, size) for start in starts])
    return cells


def covered(start: int, stop: int, size: int) -> tuple[int, int]:
    """Return start and stop of a window clamped to an axis; both equal where it lies outside."""
    return min(max(start, 0), size), min(max(stop, 0), size)


def pool_taps(
    images: Sequence[Array], outputs: Sequence[Array], windows: Sequence[KnownWindow]
) -> list[list[Array]]:
    """Return, for each tap in row-major order, views of images under it, and of outputs.

    The views exclude outputs whose tap lies outside the image.
    """

    def part(window: KnownWindow, tap: int) -> tuple[slice, slice]:
        stride, shift = window.stride, tap - window.before
        first = max(0, -(shift // stride))
        last = max(first, min(window.count, (window.size - 1 - shift) // stride + 1))
        start = first * stride + shift
        return slice(start, start + (last - first) * stride, stride), slice(first, last)

    taps: list[list[Array]] = []
    for tap in np.ndindex(*[window.kernel for window in windows]):
        parts = [part(window, position) for window, position in zip(windows, tap, strict=True)]
        source = [image[(..., *(inside for inside, _ in parts))] for image in images]
        taps.append(
            source
            + [output[(..., *(target_part for _, target_part in parts))] for output in outputs]
        )
    return taps


def pool_largest(taps: list[list[Array]], output: Array) -> None:
    """Compute the maximum of each window."""
    output.fill(np.finfo(output.dtype).min)
    for source, target in taps:
        np.maximum(target, source, out=target)


def pool_largest_gradient(taps: list[list[Array]], waiting: Array, d_image: Array) -> None:
    """Add each output's gradient to the first tap that holds its value.

    `waiting` marks outputs not matched yet. Taps hold image, its gradient, output, its gradient,
    waiting, a mask, and scratch where windows overlap, so that gradients must be added.
    """
    waiting.fill(True)
    d_image.fill(0)
    for source, d_source, target, d_target, still, matched, *part in taps:
        np.equal(source, target, out=matched)
        np.logical_and(matched, still, out=matched)
        np.logical_xor(still, matched, out=still)
        np.multiply(d_target, matched, out=part[0] if part else d_source)
        if part:
            np.add(d_source, part[0], out=d_source)


def pool_sum(taps: list[list[Array]], output: Array, share: float | Array) -> None:
    """Compute the sum of each window times `share`."""
    output.fill(0)
    for source, target in taps:
        np.add(target, source, out=target)
    np.multiply(output, share, out=output)


def pool_sum_gradient(
    taps: list[list[Array]], d_output: Array, share: float | Array, part: Array, d_image: Array
) -> None:
    """Add each output's gradient times `share` to its whole window; taps hold image and `part`."""
    np.multiply(d_output, share, out=part)
    d_image.fill(0)
    for d_source, d_target in taps:
        np.add(d_source, d_target, out=d_source)


def one_over_covered(windows: Sequence[KnownWindow], dtype: str) -> Array:
    """Return 1 / the number of image elements at each position, at least one."""
    covered = np.ones(())
    for window in windows:
        first = np.arange(window.count) * window.stride - window.before
        inside = np.minimum(first + window.kernel, window.size) - np.maximum(first, 0)
        covered = np.multiply.outer(covered, inside)
    return (1 / np.maximum(covered, 1)).astype(dtype)


def cell_index(
    cells: Sequence[Sequence[tuple[int, int]]], position: Sequence[int]
) -> tuple[Any, ...]:
    """Return the index of one cell in a batch of images."""
    edges = [axis[i] for axis, i in zip(cells, position, strict=True)]
    return (..., *(slice(start, stop) for start, stop in edges))


def pool_cells(
    images: Array, cells: Sequence[Sequence[tuple[int, int]]], largest: bool, divisor: int
) -> Array:
    """Return the maximum or the mean of each cell; `divisor` 0 means the cell's size."""
    counts, axes = [len(axis) for axis in cells], tuple(range(2, images.ndim))
    output = np.zeros((*images.shape[:2], *counts), images.dtype)
    for position in np.ndindex(*counts):
        cell = images[cell_index(cells, position)]
        if largest:
            output[(..., *position)] = cell.max(axis=axes, initial=np.finfo(images.dtype).min)
        else:
            output[(..., *position)] = cell.sum(axis=axes) / (
                divisor or max(int(np.prod(cell.shape[2:])), 1)
            )
    return output


def pool_cells_gradient(
    images: Array,
    maxima: Array | None,
    d_output: Array,
    cells: Sequence[Sequence[tuple[int, int]]],
    divisor: int,
) -> Array:
    """Add each output's gradient to the first element of its cell that equals its maximum.

    Without maxima, add it in equal shares to all elements. A maximum that no element equals passes
    nothing on.
    """
    d_images = np.zeros_like(images)
    for position in np.ndindex(*[len(axis) for axis in cells]):
        spans = cell_index(cells, position)
        cell, upstream = images[spans], d_output[(..., *position)]
        pixels = divisor or max(int(np.prod(cell.shape[2:])), 1)
        share: Array = np.full(cell.shape, 1 / pixels, cell.dtype)
        if maxima is not None and cell.size:
            flat = cell.reshape(*cell.shape[:2], int(np.prod(cell.shape[2:])))
            found = flat == maxima[(..., *position)][:, :, None]
            share = np.zeros_like(flat)
            first = found.argmax(axis=2)[:, :, None]
            np.put_along_axis(share, first, found.any(axis=2, keepdims=True), axis=2)
        upstream = upstream.reshape(*cell.shape[:2], *[1] * len(cells))
        d_images[spans] += upstream * share.reshape(cell.shape)
    return d_images


def pool_whole_gradient(image: Array, maximum: Array, d_output: Array, d_image: Array) -> None:
    """Pass gradients to the first element along axis 1 that equals the maximum, if one does."""
    found = image == maximum
    first = found.argmax(axis=1)
    d_image.fill(0)
    passed = d_output * found.any(axis=1, keepdims=True)
    np.put_along_axis(d_image, np.expand_dims(first, 1), passed, axis=1)
