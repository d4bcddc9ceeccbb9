"""Random changes of the colours of images [height, width, 3] in the order blue, green, red.

Values are 0 to 255 and keep their dtype. How much a change is drawn from NumPy's global generator
at every call.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from compiler.ir.types import Array

__all__ = [
    "BrightnessTransform",
    "ColorJitter",
    "ContrastTransform",
    "HueTransform",
    "SaturationTransform",
]

GREY = np.array([0.114, 0.587, 0.299], np.float32)
"""The share of blue, green and red in the grey value of a pixel."""


class BrightnessTransform:
    """Multiplies an image by a number that is drawn from 1 - `value`, at least 0, to 1 + `value`.

    Raises ValueError for a negative value.
    """

    def __init__(self, value: float) -> None:
        self.value = _expect("brightness", value)

    def __call__(self, img: Array) -> Array:
        """The changed image; the image itself if the value is 0."""
        return _mixed(img, self.value, lambda pixels: np.zeros_like(pixels))


class ContrastTransform:
    """Moves an image to or from its mean grey, by a share that is drawn as for brightness.

    Raises ValueError for a negative value.
    """

    def __init__(self, value: float) -> None:
        self.value = _expect("contrast", value)

    def __call__(self, img: Array) -> Array:
        """The changed image; the image itself if the value is 0."""
        return _mixed(img, self.value, lambda pixels: (pixels @ GREY).mean())


class SaturationTransform:
    """Moves each pixel to or from its grey, by a share that is drawn as for brightness.

    Raises ValueError for a negative value.
    """

    def __init__(self, value: float) -> None:
        self.value = _expect("saturation", value)

    def __call__(self, img: Array) -> Array:
        """The changed image; the image itself if the value is 0."""
        return _mixed(img, self.value, lambda pixels: (pixels @ GREY)[..., np.newaxis])


class HueTransform:
    """Turns the hues by a share of the circle that is drawn from -`value` to `value`.

    Hues are rounded to 1/256 of the circle. Raises ValueError for a value outside of 0 to 0.5.
    """

    def __init__(self, value: float) -> None:
        self.value = _expect("hue", value, 0.5)

    def __call__(self, img: Array) -> Array:
        """The changed image; the image itself if the value is 0."""
        if self.value == 0:
            return img
        share = np.random.uniform(-self.value, self.value)
        turned = _turned(img.astype(np.uint8), int(share * 255))
        return turned.astype(img.dtype)


class ColorJitter:
    """Changes brightness, contrast, saturation and hue, in an order that is drawn when it is made.

    Raises ValueError for values that the changes do not take; those of 0 change nothing.
    """

    def __init__(
        self,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        hue: float = 0,
    ) -> None:
        kinds = (BrightnessTransform, ContrastTransform, SaturationTransform, HueTransform)
        values = (brightness, contrast, saturation, hue)
        self.transforms = [kind(value) for kind, value in zip(kinds, values, strict=True) if value]
        random.shuffle(self.transforms)

    def __call__(self, img: Array) -> Array:
        """The changed image."""
        for transform in self.transforms:
            img = transform(img)
        return img


def _expect(name: str, value: float, most: float | None = None) -> float:
    if value < 0 or (most is not None and value > most):
        wanted = "non-negative" if most is None else f"in [0.0, {most}]"
        raise ValueError(f"{name} value should be {wanted}, but is {value}")
    return value


def _mixed(img: Array, value: float, other_of: Callable[[Array], Array]) -> Array:
    """A share of an image, and the rest of what `other_of` gives for it; the image for value 0."""
    if value == 0:
        return img
    pixels = img.astype(np.float32)
    share = np.float32(np.random.uniform(max(0.0, 1 - value), 1 + value))
    return (pixels * share + other_of(pixels) * (1 - share)).clip(0, 255).astype(img.dtype)


def _turned(img: Array, steps: int) -> Array:
    """An image uint8 with all hues turned by `steps` of 256.

    Hue and saturation are 8 bits in between, where a full circle is 256 forth and 255 back, and
    fractions are dropped, as in OpenCV's conversions COLOR_BGR2HSV_FULL and COLOR_HSV2BGR_FULL,
    which release 1.8.5 calls.
    """
    pixels = img.astype(np.float32)
    most, least = pixels.max(-1), pixels.min(-1)
    span = np.where(most > least, most - least, 1)
    blue, green, red = np.moveaxis(pixels, -1, 0)
    sixths = np.select(
        [most == red, most == green],
        [(green - blue) / span, 2 + (blue - red) / span],
        4 + (red - green) / span,
    )
    hues = (np.rint(sixths % 6 * (256 / 6)) + steps) % 256
    places = np.array([1, 3, 5], np.float32)  # of blue, green and red in the wheel of sixths
    angles = (places + hues[..., np.newaxis] * (6 / 255)) % 6
    depth = np.clip(np.minimum(angles, 4 - angles), 0, 1)
    saturation = np.rint((most - least) * 255 / np.maximum(most, 1)) / 255
    changed = most[..., np.newaxis] * (1 - saturation[..., np.newaxis] * depth)
    return changed.astype(np.uint8)
