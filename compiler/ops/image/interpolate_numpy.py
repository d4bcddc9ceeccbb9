"""How images are resampled, as functions that generated code carries with it.

Every method is the same sum along one axis after another: element i of the output is
Σ weights[i, j] * input[places[i, j]]. Positions are worked out in the precision the reference uses,
for an index must not fall to the other side of a whole number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.ops.image.windows import is_channels_last

CUBIC = -0.75
"""The parameter of the cubic kernel."""


def wanted_sizes(
    sizes: Sequence[int],
    attributes: Sequence[int],
    scale: Any,
    size_tensor: Sequence[Array] | None,
    out_size: Array | None,
) -> list[int]:
    """The sizes of the output: tensors of sizes go before scales, and these before attributes.

    `scale` is a number or a list of them, one for all axes or one for each.
    """
    if size_tensor:
        return [int(each.reshape(-1)[0]) for each in size_tensor]
    if out_size is not None:
        return [int(size) for size in out_size.reshape(-1)]
    factors = scale_of(scale, len(sizes))
    if not factors:
        return list(attributes)
    pairs = zip(sizes, factors, strict=True)
    return [int(np.float32(size) * np.float32(factor)) for size, factor in pairs]


def scale_of(scale: Any, axes: int) -> list[float]:
    """The factor of each axis; none where `scale` says nothing."""
    factors = [float(each) for each in np.reshape(np.asarray(scale, np.float32), -1)]
    if not factors or factors[0] <= 0:
        return []
    return factors if len(factors) == axes else factors[:1] * axes


def axis_ratio(size: int, count: int, align_corners: bool, factor: float) -> np.float32:
    """How far one step of the output goes in the input; `factor` is its scale, 0 for none."""
    if count <= 1:
        return np.float32(0)
    if align_corners:
        return np.float32(size - 1) / np.float32(count - 1)
    return np.float32(1 / factor) if factor > 0 else np.float32(size) / np.float32(count)


def axis_taps(
    size: int, count: int, method: str, align_corners: bool, align_mode: int, factor: float
) -> tuple[Array, Array]:
    """Places [count, taps] of an axis and their weights, for `count` elements of the output."""
    ratio, steps = axis_ratio(size, count, align_corners, factor), np.arange(count)
    plain = ratio * steps.astype(np.float32)
    centred = np.float64(ratio) * (steps + 0.5) - 0.5
    if method == "nearest":
        places = (plain + 0.5 if align_corners else plain).astype(np.int64)[:, None]
        return np.minimum(places, size - 1), np.ones(places.shape)
    if method == "bicubic":
        return cubic_taps(plain if align_corners else centred.astype(np.float32), size)
    between = align_mode == 0 and not align_corners
    found = np.maximum(centred, 0) if between else plain
    first = np.minimum(found.astype(np.int64), size - 1)
    share = found.astype(np.float32) - first
    places = np.stack([first, np.minimum(first + 1, size - 1)], axis=1)
    return places, np.stack([1 - share, share], axis=1)


def cubic_taps(found: Array, size: int) -> tuple[Array, Array]:
    """The four places around each position, and the weights of the cubic kernel."""
    first = np.floor(found)
    share = (found - first)[:, None]
    away = np.abs(share - np.array([-1, 0, 1, 2]))
    near = ((CUBIC + 2) * away - (CUBIC + 3)) * away * away + 1
    far = ((CUBIC * away - 5 * CUBIC) * away + 8 * CUBIC) * away - 4 * CUBIC
    places = first.astype(np.int64)[:, None] + np.array([-1, 0, 1, 2])
    return np.clip(places, 0, size - 1), np.where(away <= 1, near, far)


def resample(images: Array, axis: int, places: Array, weights: Array) -> Array:
    """Images resampled along one axis."""
    if places.shape[1] == 1:
        return images.take(places[:, 0], axis=axis)
    shape = [-1 if each == axis else 1 for each in range(images.ndim)]
    parts = [
        images.take(places[:, tap], axis=axis) * weights[:, tap].astype(images.dtype).reshape(shape)
        for tap in range(places.shape[1])
    ]
    return np.add.reduce(parts)


def resample_gradient(above: Array, axis: int, places: Array, weights: Array, size: int) -> Array:
    """What resampling along an axis gives back: the weights as a matrix, transposed."""
    matrix = np.zeros((len(places), size), above.dtype)
    np.add.at(matrix, (np.arange(len(places))[:, None], places), weights)
    return np.moveaxis(np.tensordot(above, matrix, (axis, 0)), -1, axis)


def resize(
    images: Array,
    layout: str,
    made: Sequence[int],
    method: tuple[str, bool, int],
    factors: Sequence[float],
) -> Array:
    """Images resampled to `made` sizes; `method` is its name, align_corners, align_mode.

    `factors` say how far a step goes where they are given; else the sizes do. Integers are
    resampled in float32, and cut to whole numbers at the end.
    """
    first, dtype = 1 if is_channels_last(layout) else 2, images.dtype
    images = images.astype(np.float32) if dtype.kind in "iu" else images
    for axis, count in enumerate(made):
        size, factor = images.shape[first + axis], factors[axis] if factors else 0
        images = resample(images, first + axis, *axis_taps(size, count, *method, factor))
    return images.astype(dtype, copy=False)


def resize_gradient(
    above: Array,
    layout: str,
    sizes: Sequence[int],
    method: tuple[str, bool, int],
    factors: Sequence[float],
) -> Array:
    """The gradient of images of these sizes, from that of what they were resampled to."""
    first = 1 if is_channels_last(layout) else 2
    for axis, size in enumerate(sizes):
        count, factor = above.shape[first + axis], factors[axis] if factors else 0
        taps = axis_taps(size, count, *method, factor)
        above = resample_gradient(above, first + axis, *taps, size)
    return above


def image_sizes(shape: Sequence[Any], layout: str) -> Sequence[Any]:
    """The sizes of images in a batch of this shape."""
    return shape[1:-1] if is_channels_last(layout) else shape[2:]
