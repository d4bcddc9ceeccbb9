"""`paddle.utils.image_util`: crops, flips and means of images, arrays [channel, height, width].

Divisions round down, as under Python 2, for which release 1.8 wrote this module. Images of files
are those of Pillow, which must be installed for them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.types import Array

from ..dataset.image import pillow_images

__all__ = [
    "ImageTransformer", "crop_img", "decode_jpeg", "flip", "load_image", "load_meta", "oversample",
    "preprocess_img", "resize_image",
]  # fmt: skip


def resize_image(img: Any, target_size: int) -> Any:
    """A Pillow image with a shorter edge of `target_size`."""
    factor = target_size / min(img.size)
    width, height = (round(edge * factor) for edge in img.size)
    return img.resize((width, height), pillow_images().LANCZOS)


def flip(im: Array) -> Array:
    """An image with its columns reversed, [channel, height, width] or [height, width]."""
    return im[..., ::-1]


def crop_img(im: Array, inner_size: int, color: bool = True, test: bool = True) -> Array:
    """A square of `inner_size`: the middle with `test`, else a random one, flipped at random.

    Images are padded with zeros where they are smaller. Draws from NumPy's global generator.
    """
    padded = _padded(im if color else im.astype(np.float32), inner_size)
    free = [int(edge) - inner_size for edge in padded.shape[-2:]]
    top, left = (edge // 2 if test else _random_below(edge + 1) for edge in free)
    crop = padded[..., top : top + inner_size, left : left + inner_size]
    return crop if test or _random_below(2) else flip(crop)


def _random_below(end: int) -> int:
    return int(np.random.randint(0, end))


def _padded(im: Array, inner_size: int) -> Array:
    """The image in the middle of zeros, with edges of at least `inner_size`; float64."""
    height, width = im.shape[-2:]
    padded = np.zeros((*im.shape[:-2], max(inner_size, height), max(inner_size, width)))
    top, left = (padded.shape[-2] - height) // 2, (padded.shape[-1] - width) // 2
    padded[..., top : top + height, left : left + width] = im
    return padded


def decode_jpeg(jpeg_string: bytes) -> Array:
    """The pixels of an image file in memory, [channel, height, width], or [height, width]."""
    pixels = np.asarray(pillow_images().open(io.BytesIO(jpeg_string)))
    return np.transpose(pixels, (2, 0, 1)) if pixels.ndim == 3 else pixels


def preprocess_img(
    im: Array, img_mean: Array, crop_size: int, is_train: bool, color: bool = True
) -> Array:
    """A crop (random if `is_train`) minus the mean, flattened."""
    crop = crop_img(im.astype(np.float32), crop_size, color, test=not is_train)
    return (crop - img_mean).flatten()


def load_meta(
    meta_path: str | Path, mean_img_size: int, crop_size: int, color: bool = True
) -> Array:
    """The middle of the mean image of a data set, from the entry `data_mean` of an npz file.

    float32. Raises AssertionError where the file has not `mean_img_size` ** 2 numbers a channel.
    """
    mean = np.load(meta_path)["data_mean"]
    shape = (*[3][: int(color)], mean_img_size, mean_img_size)
    assert mean.shape[0] == np.prod(shape), f"expected {np.prod(shape)} numbers in {meta_path}"
    border = (mean_img_size - crop_size) // 2
    middle = slice(border, border + crop_size)
    return mean.reshape(shape)[..., middle, middle].astype(np.float32)


def load_image(img_path: str | Path, is_color: bool = True) -> Any:
    """The Pillow image of a file; `is_color` has no effect."""
    image = pillow_images().open(img_path)
    image.load()
    return image


def oversample(img: Sequence[Array], crop_dims: Sequence[int]) -> Array:
    """Ten crops of each image [height, width, channel]: corners and middle, and their mirrors.

    float32 [10 * images, *crop_dims, channel].
    """
    height, width, channels = img[0].shape
    rows, columns = crop_dims
    corners = [(top, left) for top in (0, height - rows) for left in (0, width - columns)]
    corners.append((int(height / 2 - rows / 2), int(width / 2 - columns / 2)))
    crops = np.empty((len(img), 2, len(corners), rows, columns, channels), np.float32)
    for image, into in zip(img, crops, strict=True):
        for index, (top, left) in enumerate(corners):
            into[0, index] = image[top : top + rows, left : left + columns]
        into[1] = into[0, :, :, ::-1]
    return crops.reshape(-1, rows, columns, channels)


class ImageTransformer:
    """Transposes axes, swaps channels and subtracts a mean."""

    def __init__(
        self,
        transpose: Sequence[int] | None = None,
        channel_swap: Sequence[int] | None = None,
        mean: Array | None = None,
        is_color: bool = True,
    ) -> None:
        self.is_color = is_color
        self.set_transpose(transpose)
        self.set_channel_swap(channel_swap)
        self.set_mean(mean)

    def set_transpose(self, order: Sequence[int] | None) -> None:
        """Set the order of axes, three for color; None for no transposition."""
        assert order is None or not self.is_color or len(order) == 3
        self.transpose = order

    def set_channel_swap(self, order: Sequence[int] | None) -> None:
        """Set the order of channels; None for that of the image."""
        assert order is None or not self.is_color or len(order) == 3
        self.channel_swap = order

    def set_mean(self, mean: Array | None) -> None:
        """Set what is subtracted: a number a channel, or a whole image; None for nothing."""
        if mean is not None and mean.ndim == 1:
            mean = mean[:, np.newaxis, np.newaxis]
        assert mean is None or not self.is_color or mean.ndim == 3
        self.mean = mean

    def transformer(self, data: Array) -> Array:
        """The transformed image."""
        if self.transpose is not None:
            data = data.transpose(self.transpose)
        if self.channel_swap is not None:
            data = data[np.asarray(self.channel_swap)]
        return data if self.mean is None else data - self.mean
