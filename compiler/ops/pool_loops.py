"""The loops of pooling, as functions that generated code carries with it.

The fast ones go through the taps of the window: one operation takes the same tap of all windows.
The `cells` ones go window by window; they say what pooling means and serve windows of uneven size.
Each knows nothing but its arguments and `np`. Images and outputs are [N, C, H, W].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array


def pool_taps(
    images: Sequence[Array],
    outputs: Sequence[Array],
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
) -> list[list[Array]]:
    """For each tap of a window, by rows: views of images under it, and of outputs that have it.

    `rows` and `columns` are (kernel, stride, padding before). Where a tap lies outside an image,
    the output is not among those that have it.
    """

    def part(size: int, count: int, tap: int, stride: int, before: int) -> tuple[slice, slice]:
        first = max(0, -((tap - before) // stride))
        last = max(first, min(count, (size - 1 + before - tap) // stride + 1))
        start = first * stride + tap - before
        return slice(start, start + (last - first) * stride, stride), slice(first, last)

    taps: list[list[Array]] = []
    for i, j in np.ndindex(rows[0], columns[0]):
        y, down = part(images[0].shape[2], outputs[0].shape[2], i, *rows[1:])
        x, across = part(images[0].shape[3], outputs[0].shape[3], j, *columns[1:])
        seen = [each[:, :, y, x] for each in images]
        taps.append(seen + [each[:, :, down, across] for each in outputs])
    return taps


def pool_largest(taps: list[list[Array]], output: Array) -> None:
    """The largest of each window."""
    output.fill(np.finfo(output.dtype).min)
    for seen, made in taps:
        np.maximum(made, seen, out=made)


def pool_largest_gradient(taps: list[list[Array]], waiting: Array, d_image: Array) -> None:
    """Each output's gradient goes to the first tap that holds its value.

    `waiting` marks outputs that have not met theirs. Taps hold image, its gradient, output, its
    gradient, waiting, a mask, and scratch where windows overlap, so that gradients must be added.
    """
    waiting.fill(True)
    d_image.fill(0)
    for seen, d_seen, made, d_made, still, found, *part in taps:
        np.equal(seen, made, out=found)
        np.logical_and(found, still, out=found)
        np.logical_xor(still, found, out=still)
        np.multiply(d_made, found, out=part[0] if part else d_seen)
        if part:
            np.add(d_seen, part[0], out=d_seen)


def pool_sum(taps: list[list[Array]], output: Array, share: float | Array) -> None:
    """The sum of each window times `share`."""
    output.fill(0)
    for seen, made in taps:
        np.add(made, seen, out=made)
    np.multiply(output, share, out=output)


def pool_sum_gradient(
    taps: list[list[Array]], d_output: Array, share: float | Array, part: Array, d_image: Array
) -> None:
    """Each output's gradient times `share` goes to all its window; taps hold image and `part`."""
    np.multiply(d_output, share, out=part)
    d_image.fill(0)
    for d_seen, d_made in taps:
        np.add(d_seen, d_made, out=d_seen)


def one_over_covered(
    rows: tuple[int, int, int, int, int], columns: tuple[int, int, int, int, int], dtype: str
) -> Array:
    """1 / how many elements of the image each window covers; at least one.

    `rows` and `columns` are (size, count, kernel, stride, padding before).
    """

    def covered(size: int, count: int, kernel: int, stride: int, before: int) -> Array:
        first = np.arange(count) * stride - before
        return np.minimum(first + kernel, size) - np.maximum(first, 0)

    return (1 / np.maximum(np.outer(covered(*rows), covered(*columns)), 1)).astype(dtype)


def pool_cells(
    images: Array,
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
    largest: bool,
    divisor: int,
) -> Array:
    """The largest or the mean of each cell; a mean divides by `divisor`, or by the cell's size."""
    output = np.zeros((*images.shape[:2], len(rows), len(columns)), images.dtype)
    for i, j in [(i, j) for i in range(len(rows)) for j in range(len(columns))]:
        (top, bottom), (left, right) = rows[i], columns[j]
        cell = images[:, :, top:bottom, left:right]
        if largest:
            output[:, :, i, j] = cell.max(axis=(2, 3), initial=np.finfo(images.dtype).min)
        else:
            output[:, :, i, j] = cell.sum(axis=(2, 3)) / (divisor or max(cell[0, 0].size, 1))
    return output


def pool_cells_gradient(
    images: Array,
    d_output: Array,
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
    largest: bool,
    divisor: int,
) -> Array:
    """Each output's gradient goes to the first largest of its cell, or in equal shares to all."""
    d_images = np.zeros_like(images)
    for i, j in [(i, j) for i in range(len(rows)) for j in range(len(columns))]:
        (top, bottom), (left, right) = rows[i], columns[j]
        cell, d_cell = (each[:, :, top:bottom, left:right] for each in (images, d_images))
        share: Array = np.full(cell.shape, 1 / (divisor or max(cell[0, 0].size, 1)), cell.dtype)
        if largest and cell.size:
            flat = cell.reshape(*cell.shape[:2], -1)
            share = np.zeros_like(flat)
            np.put_along_axis(share, flat.argmax(axis=2)[:, :, None], 1, axis=2)
        d_cell += d_output[:, :, i, j, None, None] * share.reshape(cell.shape)
    return d_images
