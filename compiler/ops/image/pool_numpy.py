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
from compiler.ops.image.windows import axis_padding, window_axis


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
        before, _, _, count = window_axis(size, kernel, stride, 1, padding, algorithm, ceil_mode)
        starts = [i * stride for i in range(kernel)]
        if not adaptive:
            starts = [i * stride - before for i in range(count)]
        cells.append([covered(start, start + kernel, size) for start in starts])
    return cells


def covered(start: int, stop: int, size: int) -> tuple[int, int]:
    """Return start and stop of a window clamped to an axis; both equal where it lies outside."""
    return min(max(start, 0), size), min(max(stop, 0), size)


def pool_taps(
    images: Sequence[Array], outputs: Sequence[Array], axes: Sequence[tuple[int, int, int]]
) -> list[list[Array]]:
    """Return, for each tap in row-major order, views of images under it, and of outputs.

    An axis is (kernel, stride, padding before). The views exclude outputs whose tap lies outside
    the image.
    """

    def part(size: int, count: int, tap: int, stride: int, before: int) -> tuple[slice, slice]:
        first = max(0, -((tap - before) // stride))
        last = max(first, min(count, (size - 1 + before - tap) // stride + 1))
        start = first * stride + tap - before
        return slice(start, start + (last - first) * stride, stride), slice(first, last)

    taps: list[list[Array]] = []
    positions = list(zip(images[0].shape[2:], outputs[0].shape[2:], axes, strict=True))
    for tap in np.ndindex(*[kernel for kernel, _, _ in axes]):
        parts = [
            part(size, count, position, *axis[1:])
            for position, (size, count, axis) in zip(tap, positions, strict=True)
        ]
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


def one_over_covered(axes: Sequence[tuple[int, int, int, int, int]], dtype: str) -> Array:
    """Return 1 / the number of image elements that each window covers, at least one.

    An axis is (size, count, kernel, stride, padding before).
    """
    covered = np.ones(())
    for size, count, kernel, stride, before in axes:
        first = np.arange(count) * stride - before
        inside = np.minimum(first + kernel, size) - np.maximum(first, 0)
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
    d_output: Array,
    cells: Sequence[Sequence[tuple[int, int]]],
    largest: bool,
    divisor: int,
) -> Array:
    """Add each output's gradient to the first maximum of its cell, or in equal shares to all."""
    d_images = np.zeros_like(images)
    for position in np.ndindex(*[len(axis) for axis in cells]):
        spans = cell_index(cells, position)
        cell, upstream = images[spans], d_output[(..., *position)]
        pixels = divisor or max(int(np.prod(cell.shape[2:])), 1)
        share: Array = np.full(cell.shape, 1 / pixels, cell.dtype)
        if largest and cell.size:
            flat = cell.reshape(*cell.shape[:2], int(np.prod(cell.shape[2:])))
            share = np.zeros_like(flat)
            np.put_along_axis(share, flat.argmax(axis=2)[:, :, None], 1, axis=2)
        upstream = upstream.reshape(*cell.shape[:2], *[1] * len(cells))
        d_images[spans] += upstream * share.reshape(cell.shape)
    return d_images
