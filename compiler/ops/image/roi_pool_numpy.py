"""RoI pooling of images, as functions that generated modules carry.

A box is divided into cells along each axis; most poolings are separable, and are then two products
with weight matrices: `down` [cells, H] times an image [C, H, W] times `across` [cells, W],
transposed.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array


def image_indices(count: int, images: int, offsets: Array | None, lod: list[Array] | None) -> Array:
    """Return the image index of each of `count` boxes, from an offset tensor or their LoD.

    Raises ValueError if neither is there or they do not match.
    """
    starts = offsets if offsets is not None else lod[-1] if lod else None
    if starts is None and images == 1:
        return np.zeros(count, np.int64)
    if starts is None or int(starts[-1]) != count or len(starts) != images + 1:
        raise ValueError(
            f"{count} boxes need sequence lengths that assign each to one of {images} images"
        )
    return np.repeat(np.arange(images), np.diff(starts.reshape(-1)))


def away_from_zero(values: Array) -> Array:
    """Return values rounded as C does: halves away from 0."""
    return np.trunc(values + np.copysign(0.5, values))


def spans(
    start: np.floating, step: np.floating, cells: int, size: int, shift: int
) -> list[tuple[int, int]]:
    """Return start and stop of the cells of an axis, shifted by `shift` and clamped to the axis.

    Computed in the precision of `start` and `step`.
    """
    intervals: list[tuple[int, int]] = []
    for cell in range(cells):
        first = int(np.floor(step.dtype.type(cell) * step + start)) + shift
        last = int(np.ceil(step.dtype.type(cell + 1) * step + start)) + shift
        intervals.append((min(max(first, 0), size), min(max(last, 0), size)))
    return intervals


def pooled_span(first: float, last: float, cells: int, size: int) -> list[tuple[int, int]]:
    """Return the cells of `roi_pool` on an axis, for scaled edges; cells are float32 always."""
    start, stop = (int(edge) for edge in away_from_zero(np.array([first, last])))
    step = np.float32(max(stop - start + 1, 1)) / np.float32(cells)
    return spans(np.float32(0), step, cells, size, start)


def aligned_weights(
    first: float, last: float, cells: int, size: int, ratio: int, dtype: np.dtype
) -> Array:
    """Return `roi_align` on an axis, the mean of interpolated samples, as weights [cells, size]."""
    length = max(last - first, 1.0)
    step = length / cells
    samples = ratio if ratio > 0 else int(np.ceil(step))
    inside = (np.arange(samples) + 0.5) * step / samples
    positions = first + np.arange(cells)[:, None] * step + inside
    counted = (positions >= -1.0) & (positions <= size)
    low = np.minimum(np.maximum(positions, 0).astype(np.int64), size - 1)
    share = np.where(low >= size - 1, 0.0, np.maximum(positions, 0) - low)
    weights = np.zeros((cells, size))
    row = np.broadcast_to(np.arange(cells)[:, None], positions.shape)
    np.add.at(weights, (row, low), (1 - share) * counted)
    np.add.at(weights, (row, np.minimum(low + 1, size - 1)), share * counted)
    return (weights / max(samples, 1)).astype(dtype)


def hat(distance: Array) -> Array:
    """Return the weight of an element at a distance in linear interpolation."""
    return np.maximum(1 - np.abs(distance), 0)


def hat_integral(distance: Array) -> Array:
    """Return the integral of `hat` up to a distance."""
    inside = np.clip(distance, -1, 1)
    return np.where(inside < 0, (1 + inside) ** 2 / 2, 1 - (1 - inside) ** 2 / 2)


def precise_weights(edges: Array, size: int) -> Array:
    """Return `prroi_pool` on an axis, the integral over each cell, as weights [cells, size].

    `edges` are the cells + 1 boundaries of the cells.
    """
    distance = hat_integral(edges[:, None] - np.arange(size))
    return distance[1:] - distance[:-1]


def cell_edges(first: float, last: float, cells: int) -> Array:
    """Return the boundaries of the cells of an axis."""
    return first + max(last - first, 0.0) * np.arange(cells + 1) / cells


def edge_gradient(along: Array, edges: Array, lost: float) -> tuple[float, float]:
    """Return the gradients of the first and the last edge of a box on an axis.

    `along` [cells, size] is the factor of each weight of `precise_weights`, and `lost` the sum of
    results times their gradients, which shrink as the cells grow.
    """
    cells, none = len(along), np.zeros((1, along.shape[1]))
    weights = hat(edges[:, None] - np.arange(int(along.shape[1])))
    moved = np.concatenate([none, along]) - np.concatenate([along, none])
    d_edges, share = (weights * moved).sum(axis=1), np.arange(cells + 1) / cells
    grown = lost / ((edges[1] - edges[0]) * cells)
    return float((d_edges * (1 - share)).sum() + grown), float((d_edges * share).sum() - grown)
