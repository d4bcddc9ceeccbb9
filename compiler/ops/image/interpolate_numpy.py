"""Resampling of images, as functions that generated modules carry.

Every method is the same sum along one axis after another: element i of the output is
Σ weights[i, j] * input[positions[i, j]]. Positions are computed in the precision that the reference
uses, because an index must not round to the other side of an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ir.windows import is_channels_last
from compiler.support.free_memory import expect_memory

TAP_BYTES = 128
"""Bytes of the positions and weights of one output element along an axis, at most."""

CUBIC = -0.75
"""The parameter of the cubic kernel."""


def requested_sizes(
    sizes: Sequence[int],
    attributes: Sequence[int],
    scale: Any,
    size_tensor: Sequence[Array] | None,
    out_size: Array | None,
) -> list[int]:
    """Return the output sizes: from size tensors, or else scales, or else attributes.

    `scale` is a number or a list of them, one for all axes or one for each. Raises ValueError for
    another number of sizes than `sizes`, and for sizes below 1.
    """
    factors = axis_scales(scale, len(sizes))
    if size_tensor:
        requested = [int(size.reshape(-1)[0]) for size in size_tensor]
    elif out_size is not None:
        requested = [int(size) for size in out_size.reshape(-1)]
    elif factors:
        pairs = zip(sizes, factors, strict=True)
        requested = [int(np.float32(size) * np.float32(factor)) for size, factor in pairs]
    else:
        requested = list(attributes)
    if len(requested) != len(sizes) or min(requested) < 1:
        raise ValueError(f"the sizes of the output are {requested}, expected sizes of at least 1")
    return requested


def axis_scales(scale: Any, axes: int) -> list[float]:
    """Return the factor of each axis; empty if `scale` is not positive."""
    factors = [float(factor) for factor in np.reshape(np.asarray(scale, np.float32), -1)]
    if not factors or factors[0] <= 0:
        return []
    return factors if len(factors) == axes else factors[:1] * axes


def axis_ratio(size: int, count: int, align_corners: bool, factor: float) -> np.float32:
    """Return the input step per output step; `factor` is the scale, 0 for none."""
    if count <= 1:
        return np.float32(0)
    if align_corners:
        return np.float32(size - 1) / np.float32(count - 1)
    return np.float32(1 / factor) if factor > 0 else np.float32(size) / np.float32(count)


def axis_taps(
    size: int,
    count: int,
    method: str,
    align_corners: bool,
    align_mode: int,
    factor: float,
    is_wide: bool,
) -> tuple[Array, Array]:
    """Return positions [count, taps] on an axis and their weights, for `count` output elements.

    Positions are float32, except centred ones of bicubic resampling of float64 (`is_wide`).
    """  # fmt: skip
    expect_memory((count,), TAP_BYTES)
    ratio, steps = axis_ratio(size, count, align_corners, factor), np.arange(count)
    plain = ratio * steps.astype(np.float32)
    centred = np.float64(ratio) * (steps + 0.5) - 0.5
    if method == "nearest":
        positions = (plain + 0.5 if align_corners else plain).astype(np.int64)[:, None]
        return np.minimum(positions, size - 1), np.ones(positions.shape)
    if method == "bicubic":
        centred = centred if is_wide else centred.astype(np.float32)
        return cubic_taps(plain if align_corners else centred, size)
    between = align_mode == 0 and not align_corners
    coordinates = np.maximum(centred, 0) if between else plain
    first = np.minimum(coordinates.astype(np.int64), size - 1)
    share = coordinates.astype(np.float32) - first
    positions = np.stack([first, np.minimum(first + 1, size - 1)], axis=1)
    return positions, np.stack([1 - share, share], axis=1)


def cubic_taps(found: Array, size: int) -> tuple[Array, Array]:
    """Return the four elements around each position, and the weights of the cubic kernel."""
    first = np.floor(found)
    share = (found - first)[:, None]
    away = np.abs(share - np.array([-1, 0, 1, 2]))
    near = ((CUBIC + 2) * away - (CUBIC + 3)) * away * away + 1
    far = ((CUBIC * away - 5 * CUBIC) * away + 8 * CUBIC) * away - 4 * CUBIC
    positions = first.astype(np.int64)[:, None] + np.array([-1, 0, 1, 2])
    return np.clip(positions, 0, size - 1), np.where(away <= 1, near, far)


def resample(
    images: Array, axis: int, positions: Array, weights: Array, out: Array | None = None
) -> Array:
    """Return images resampled along one axis, in `out` if it is given."""
    if positions.shape[1] == 1:
        return images.take(positions[:, 0], axis=axis, out=out, mode="clip")
    shape = [-1 if other == axis else 1 for other in range(images.ndim)]
    parts = [
        images.take(positions[:, tap], axis=axis)
        * weights[:, tap].astype(images.dtype).reshape(shape)
        for tap in range(positions.shape[1])
    ]
    return np.add.reduce(parts, out=out)


def resample_gradient(
    upstream: Array, axis: int, positions: Array, weights: Array, size: int
) -> Array:
    """Return the gradient of resampling along an axis: the transposed weights times `upstream`."""
    matrix = np.zeros((len(positions), size), upstream.dtype)
    np.add.at(matrix, (np.arange(len(positions))[:, None], positions), weights)
    return np.moveaxis(np.tensordot(upstream, matrix, (axis, 0)), -1, axis)


def resize(
    images: Array,
    layout: str,
    output_sizes: Sequence[int],
    method: tuple[str, bool, int],
    factors: Sequence[float],
) -> Array:
    """Return images of sizes `output_sizes`; `method` is its name, align_corners, align_mode.

    Steps come from `factors` if there are any, otherwise from the sizes. Integers are resampled in
    float32 and truncated at the end. Raises MemoryError at once if no memory holds the result.
    """
    first, dtype = 1 if is_channels_last(layout) else 2, images.dtype
    images = images.astype(np.float32) if dtype.kind in "iu" else images
    end = first + len(output_sizes)
    expect_memory((*images.shape[:first], *output_sizes, *images.shape[end:]), 2 * images.itemsize)
    result = np.empty((*images.shape[:first], *output_sizes, *images.shape[end:]), images.dtype)
    for axis, count in enumerate(output_sizes, first):
        size, factor = images.shape[axis], factors[axis - first] if factors else 0
        taps = axis_taps(size, count, *method, factor, images.dtype == np.float64)
        images = resample(images, axis, *taps, result if axis == end - 1 else None)
    return result.astype(dtype, copy=False)


def resize_gradient(
    upstream: Array,
    layout: str,
    sizes: Sequence[int],
    method: tuple[str, bool, int],
    factors: Sequence[float],
) -> Array:
    """Return the gradient of images of these sizes, from that of the resampled images."""
    first = 1 if is_channels_last(layout) else 2
    for axis, size in enumerate(sizes):
        count, factor = upstream.shape[first + axis], factors[axis] if factors else 0
        taps = axis_taps(size, count, *method, factor, upstream.dtype == np.float64)
        upstream = resample_gradient(upstream, first + axis, *taps, size)
    return upstream


def image_sizes(shape: Sequence[Any], layout: str) -> Sequence[Any]:
    """Return the image sizes of a batch shape."""
    return shape[1:-1] if is_channels_last(layout) else shape[2:]
