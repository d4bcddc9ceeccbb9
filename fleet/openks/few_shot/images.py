"""Reads an image file as a small array, with limits for untrusted files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.types import Array

PIXELS = 64_000_000
"""Maximum number of pixels of a file; larger ones are rejected before they are decoded."""


class ImageDataError(ValueError):
    """A folder or file of a few-shot data set that cannot be used."""


def read_image(path: Path, size: int, mode: str, rotation: float = 0) -> Array:
    """Decode an image, resize it to `size` × `size` and rotate it counter-clockwise, as uint8.

    `mode` is Pillow's: "RGB" returns [size, size, 3]; "L" (grey) and "1" (black and white) return
    [size, size]. Raises ImageDataError for a file that is missing, not an image, damaged, or larger
    than `PIXELS`.
    """
    pillow = import_module("PIL.Image")
    try:
        with pillow.open(path) as image:
            _expect_small(path, image)
            image_resized = image.resize((size, size)).convert(mode)
            return np.asarray(image_resized.rotate(rotation) if rotation else image_resized).astype(
                np.uint8
            )
    except FileNotFoundError as error:
        raise ImageDataError(f"{path}: there is no such file") from error
    except (OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ImageDataError(f"{path}: not an image that can be read ({error})") from error


def _expect_small(path: Path, image: Any) -> None:
    width, height = image.size
    if width * height > PIXELS:
        raise ImageDataError(f"{path}: {width} × {height} pixels, expected at most {PIXELS}")
