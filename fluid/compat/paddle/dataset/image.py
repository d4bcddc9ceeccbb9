"""`paddle.dataset.image`: reading, resizing, cropping and flipping of images.

Images are uint8 [height, width, 3] in the order blue, green, red, as in release 1.8, or
[height, width] in grey. Reading one requires the package Pillow.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.ir.types import Array

from .common import DatasetError

__all__ = [
    "center_crop",
    "left_right_flip",
    "load_and_transform",
    "load_image",
    "load_image_bytes",
    "random_crop",
    "resize_short",
    "simple_transform",
    "to_chw",
]


def pillow_images() -> Any:
    """The module PIL.Image; DatasetError where Pillow is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DatasetError("reading images requires Pillow: pip install pillow") from error


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Array:
    """The picture in the bytes of a file; DatasetError without Pillow or for no picture."""
    try:
        pixels = np.asarray(
            pillow_images().open(io.BytesIO(bytes)).convert("RGB" if is_color else "L")
        )
    except (OSError, ValueError) as error:
        raise DatasetError(f"a picture of {len(bytes)} bytes cannot be read: {error}") from error
    return pixels[..., ::-1] if is_color else pixels


def load_image(file: str, is_color: bool = True) -> Array:
    """The picture in a file; DatasetError without Pillow or for no picture."""
    return load_image_bytes(Path(file).read_bytes(), is_color)


def resize_short(im: Array, size: int) -> Array:
    """A picture with a shorter side of `size`, by cubic interpolation.

    >>> resize_short(np.zeros((6, 4, 3), np.uint8), 8).shape
    (12, 8, 3)
    """
    height, width = im.shape[:2]
    short = min(height, width)
    rows = _resized(im.astype(np.float64), size * height // short, axis=0)
    return np.rint(_resized(rows, size * width // short, axis=1)).clip(0, 255).astype(im.dtype)


def _resized(im: Array, size: int, axis: int) -> Array:
    """Another size along one axis, each new pixel of the four around it; edges are repeated."""
    length = im.shape[axis]
    place = (np.arange(size) + 0.5) * length / size - 0.5
    left = np.floor(place).astype(int)
    spread = [size if other == axis else 1 for other in range(im.ndim)]
    taps = (left + offset for offset in range(-1, 3))
    weighted = [
        np.take(im, tap.clip(0, length - 1), axis) * _cubic(abs(place - tap)).reshape(spread)
        for tap in taps
    ]
    total = weighted[0]
    for part in weighted[1:]:
        total = total + part
    return total


def _cubic(distance: Array, sharpness: float = -0.75) -> Array:
    """The weight of a pixel at a distance below 2 (R. Keys, Cubic convolution, 1981)."""
    near = ((sharpness + 2) * distance - (sharpness + 3)) * distance**2 + 1
    far = sharpness * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)


def to_chw(im: Array, order: Sequence[int] = (2, 0, 1)) -> Array:
    """A picture with its colours first.

    >>> to_chw(np.zeros((4, 5, 3))).shape
    (3, 4, 5)
    """
    return im.transpose(order)


def center_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """The `size`×`size` pixels in the middle.

    >>> center_crop(np.arange(16).reshape(4, 4), 2)
    array([[ 5,  6],
           [ 9, 10]])
    """
    top, left = ((side - size) // 2 for side in im.shape[:2])
    return im[top : top + size, left : left + size]


def random_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """A random crop of `size`×`size` pixels, by NumPy's global generator as in release 1.8."""
    top, left = (int(np.random.randint(0, int(side) - size + 1)) for side in im.shape[:2])
    return im[top : top + size, left : left + size]


def left_right_flip(im: Array, is_color: bool = True) -> Array:
    """A picture with left and right exchanged.

    >>> left_right_flip(np.array([[1, 2, 3]]))
    array([[3, 2, 1]])
    """
    return im[:, ::-1]


def simple_transform(
    im: Array,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: ArrayLike | None = None,
) -> Array:
    """A picture resized and cropped, float32 [3, crop_size, crop_size], less a mean.

    To learn from, any part is taken and half of them are flipped; otherwise the middle is.
    `mean` has a value for each colour or for each element.
    """
    im = resize_short(im, resize_size)
    im = (random_crop if is_train else center_crop)(im, crop_size, is_color)
    if is_train and np.random.randint(2) == 0:
        im = left_right_flip(im, is_color)
    im = (to_chw(im) if im.ndim == 3 else im).astype(np.float32)
    if mean is None:
        return im
    less = np.array(mean, np.float32)
    return im - (less[:, np.newaxis, np.newaxis] if less.ndim == 1 and is_color else less)


def load_and_transform(
    filename: str,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: ArrayLike | None = None,
) -> Array:
    """The picture in a file, as `simple_transform` makes it."""
    return simple_transform(
        load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean
    )
