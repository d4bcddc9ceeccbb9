"""Image files as feeds: decoded, resized to the model's input size and normalised.

A feed accepts images if it has four axes, one of them of size 1 or 3 for the channels: NCHW or
NHWC. Values become (pixel · scale - mean) ÷ std.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError, shape_text
from fluid.framework import Variable

__all__ = ["ENDINGS", "ImageOptions", "is_image_file", "read_images", "accepts_images"]

ENDINGS = (
    ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
"""File suffixes of images."""

COLOURS = (1, 3)


class _Image(Protocol):
    """What is used of Pillow's images."""

    size: tuple[int, int]
    width: int
    height: int

    def resize(self, size: Sequence[int], resample: int) -> _Image: ...

    def crop(self, box: tuple[int, int, int, int]) -> _Image: ...


@dataclass(frozen=True)
class ImageOptions:
    """How pixels (0 to 255) are resized and normalised.

    `scale`, `mean` and `std` are one number or one per channel; `bgr` puts blue first. `short` is
    the size the shorter edge is resized to before a center crop; without it an image is stretched
    to the model's size. `size` (height, width) is for models with dynamic height and width.
    """

    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False
    short: int | None = None
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Layout:
    """Number and position of the channels of a feed, and its height and width."""

    colours: int
    last: bool
    size: tuple[int, int]


def is_image_file(path: Path) -> bool:
    """Whether a file is an image, by its suffix.

    >>> is_image_file(Path("cat.JPG")), is_image_file(Path("cat.npy"))
    (True, False)
    """
    return path.suffix.lower() in ENDINGS


def accepts_images(var: Variable) -> bool:
    """Whether a feed has the shape and dtype of images."""
    return _layout(var) is not None


def read_images(paths: Sequence[Path], var: Variable, options: ImageOptions) -> Array:
    """Read images into a batch with the layout and dtype of a feed.

    Raises CommandError without Pillow, for a feed that does not accept images, for a file that is
    not an image, and for images of different sizes where the model's size is dynamic; OSError.
    """
    layout = _layout(var)
    if layout is None:
        raise CommandError(
            f"feed {var.name!r} does not accept images: it is {shape_text(var)}, not four axes, "
            "one of size 1 or 3"
        )
    images = [_prepared(_opened(path, layout.colours), layout, options) for path in paths]
    sizes = {image.shape for image in images}
    if len(sizes) > 1:
        raise CommandError(
            f"the images for feed {var.name!r} have different sizes: pass --size HEIGHTxWIDTH"
        )
    return _scaled(np.stack(images), layout, options, var)


def _layout(var: Variable) -> _Layout | None:
    dims = var.dims or ()
    if len(dims) != 4 or var.element.numpy.kind not in "fu":
        return None
    if dims[1] in COLOURS:
        return _Layout(dims[1], last=False, size=(dims[2], dims[3]))
    if dims[3] in COLOURS:
        return _Layout(dims[3], last=True, size=(dims[1], dims[2]))
    return None


def _opened(path: Path, colours: int) -> _Image:
    """Open an image with Pillow, with its EXIF orientation applied."""
    try:
        pillow = importlib.import_module("PIL.Image")
        upright = importlib.import_module("PIL.ImageOps").exif_transpose
    except ImportError as error:
        raise CommandError("reading images requires Pillow: pip install pillow") from error
    decode_errors = (
        ValueError,
        SyntaxError,
        pillow.UnidentifiedImageError,
        pillow.DecompressionBombError,
    )
    try:
        with pillow.open(path) as image:
            return cast(_Image, upright(image).convert("L" if colours == 1 else "RGB"))
    except decode_errors as error:
        raise CommandError(f"{path} is not a readable image: {error}") from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise CommandError(f"{path} is not a readable image: {error}") from error


def _prepared(image: _Image, layout: _Layout, options: ImageOptions) -> Array:
    """Pixels [height, width, channels] at the target size, in RGB order."""
    height, width = layout.size if min(layout.size) > 0 else options.size or (-1, -1)
    if options.short:
        ratio = options.short / min(image.size)
        image = image.resize([max(1, round(side * ratio)) for side in image.size], 2)
    if options.short and height > 0:
        image = _middle(image, height, width)
    elif height > 0:
        image = image.resize((width, height), 2)
    pixels = np.asarray(image, np.uint8)
    return pixels.reshape(*pixels.shape[:2], layout.colours)


def _middle(image: _Image, height: int, width: int) -> _Image:
    """Center crop of an image; raises CommandError if the image is smaller."""
    if image.width < width or image.height < height:
        raise CommandError(
            f"an image of {image.height}x{image.width} is too small for a crop of "
            f"{height}x{width}: choose a larger --resize-short"
        )
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _scaled(pixels: Array, layout: _Layout, options: ImageOptions, var: Variable) -> Array:
    """Normalise and transpose pixels to the feed's layout and dtype."""
    pixels = pixels[..., ::-1] if options.bgr else pixels
    element = var.element.numpy
    if element.kind == "f":
        for name, numbers in (("--mean", options.mean), ("--std", options.std)):
            if len(numbers) not in (1, layout.colours):
                actual = f"{name} has {len(numbers)} values"
                raise CommandError(f"{actual} for {layout.colours} channels")
        mean, std = (np.array(values, np.float32) for values in (options.mean, options.std))
        pixels = (pixels.astype(np.float32) * np.float32(options.scale) - mean) / std
    return np.ascontiguousarray(pixels if layout.last else pixels.transpose(0, 3, 1, 2), element)
