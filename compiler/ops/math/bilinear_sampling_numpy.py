"""Bilinear sampling of images, as NumPy functions copied into generated code.

Images are [N, H, W, C]. Sampling positions are fractional row and column indices [n, h, w], with an
image index for each; the samples are [n, h, w, C], interpolated linearly between the four
neighbouring pixels. Pixels outside an image are 0.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array

CORNERS = "00 01 10 11"
"""Row and column offsets of the four neighbours from the upper left one."""


def every(images: Array) -> Array:
    """Return image indices [N, 1, 1] that pair positions [N, h, w] with images by batch."""
    return np.arange(len(images)).reshape(-1, 1, 1)


def corner(
    images: Array, number: Array, row: Array, column: Array
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Read pixels at integer positions; return them, the in-bounds mask and the clamped index."""
    height, width = images.shape[1:3]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    down = np.clip(row, 0, height - 1).astype(np.int64)
    right = np.clip(column, 0, width - 1).astype(np.int64)
    return images[number, down, right] * inside[..., None], inside, (number, down, right)


def sample(images: Array, number: Array, rows: Array, columns: Array) -> Array:
    """Sample images bilinearly at fractional positions."""
    top, left = np.floor(rows), np.floor(columns)
    result = np.zeros((*rows.shape, images.shape[3]), images.dtype)
    for down, right in [(int(step[0]), int(step[1])) for step in CORNERS.split()]:
        row, column = top + down, left + right
        share = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column))
        result += corner(images, number, row, column)[0] * share[..., None]
    return result


def sample_gradient(
    images: Array, number: Array, rows: Array, columns: Array, upstream: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of images, rows and columns from the gradient of the samples."""
    top, left = np.floor(rows), np.floor(columns)
    d_images = np.zeros(images.shape, images.dtype)
    d_rows, d_columns = np.zeros((2, *rows.shape), images.dtype)
    for down, right in [(int(step[0]), int(step[1])) for step in CORNERS.split()]:
        row, column = top + down, left + right
        near, across = 1 - np.abs(rows - row), 1 - np.abs(columns - column)
        pixels, inside, index = corner(images, number, row, column)
        np.add.at(d_images, index, upstream * (near * across * inside)[..., None])
        along = (pixels * upstream).sum(axis=-1)
        d_rows += along * across * (2 * down - 1)
        d_columns += along * near * (2 * right - 1)
    return d_images, d_rows, d_columns
