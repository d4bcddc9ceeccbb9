"""Pictures at places between their elements, as functions that generated code carries.

Pictures are [N, H, W, C], places are rows and columns [n, h, w] in elements, with the number of the
picture each is in, and what is seen there is [n, h, w, C], linear between the four neighbours;
outside a picture it is 0.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array

CORNERS = "00 01 10 11"
"""Steps down and right from the upper left neighbour."""


def every(images: Array) -> Array:
    """The numbers of pictures for places [N, h, w]: the first are in the first."""
    return np.arange(len(images)).reshape(-1, 1, 1)


def corner(
    images: Array, number: Array, row: Array, column: Array
) -> tuple[Array, Array, tuple[Array, ...]]:
    """What pictures show at whole places; which of those are inside; the index of what was seen."""
    height, width = images.shape[1:3]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    down = np.clip(row, 0, height - 1).astype(np.int64)
    right = np.clip(column, 0, width - 1).astype(np.int64)
    return images[number, down, right] * inside[..., None], inside, (number, down, right)


def sample(images: Array, number: Array, rows: Array, columns: Array) -> Array:
    """What pictures show at places."""
    top, left = np.floor(rows), np.floor(columns)
    made = np.zeros((*rows.shape, images.shape[3]), images.dtype)
    for down, right in [(int(step[0]), int(step[1])) for step in CORNERS.split()]:
        row, column = top + down, left + right
        share = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column))
        made += corner(images, number, row, column)[0] * share[..., None]
    return made


def sample_gradient(
    images: Array, number: Array, rows: Array, columns: Array, above: Array
) -> tuple[Array, Array, Array]:
    """The gradients of pictures, rows and columns from that of what was seen."""
    top, left = np.floor(rows), np.floor(columns)
    d_images = np.zeros(images.shape, images.dtype)
    d_rows, d_columns = np.zeros((2, *rows.shape), images.dtype)
    for down, right in [(int(step[0]), int(step[1])) for step in CORNERS.split()]:
        row, column = top + down, left + right
        near, across = 1 - np.abs(rows - row), 1 - np.abs(columns - column)
        seen, inside, index = corner(images, number, row, column)
        np.add.at(d_images, index, above * (near * across * inside)[..., None])
        along = (seen * above).sum(axis=-1)
        d_rows += along * across * (2 * down - 1)
        d_columns += along * near * (2 * right - 1)
    return d_images, d_rows, d_columns
