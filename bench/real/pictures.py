"""Images for vision models: photographs if scikit-image is installed, else drawn ones.

Each model has its own size and normalisation. Images are uint8 [height, width, 3], model inputs
float32 [1, 3, height, width].
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from math import ceil

import numpy as np
from numpy.typing import NDArray

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the colours in ImageNet, which most models are pretrained on."""

WHITE, BLACK = 255, 20
LINE, TEXT_HEIGHT = slice(46, 72), 48


def photographs() -> dict[str, NDArray[np.uint8]]:
    """A cat and a cup of coffee; one drawn image if they are not installed."""
    if find_spec("skimage") is None:
        return {"drawn": _drawn()}
    data = importlib.import_module("skimage.data")
    return {"cat": data.cat(), "coffee": data.coffee()}


def lines_of_text() -> dict[str, NDArray[np.uint8]]:
    """A line of a printed page, upright and rotated by 180°; drawn strokes if there is no page."""
    if find_spec("skimage") is None:
        line = _strokes()
    else:
        line = importlib.import_module("skimage.data").page()[LINE, 2:380]
    upright = np.repeat(line[:, :, None], 3, axis=2)
    return {"upright": upright, "turned": np.ascontiguousarray(upright[::-1, ::-1])}


def drawn_table(rows: int = 4, columns: int = 3) -> NDArray[np.uint8]:
    """A table with lines around its cells and strokes as words in them."""
    height, width = 60, 120
    picture = np.full((rows * height + 3, columns * width + 3, 3), WHITE, np.uint8)
    for row in range(rows + 1):
        picture[row * height : row * height + 3] = BLACK
    for column in range(columns + 1):
        picture[:, column * width : column * width + 3] = BLACK
    word = np.repeat(_strokes()[::2, :160:2, None], 3, axis=2)
    for row in range(rows):
        for column in range(columns):
            top, left = row * height + 20, column * width + 20
            picture[top : top + len(word), left : left + word.shape[1]] = word
    return picture


# ---- what models are shown ----


def for_angles(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Resize to 48 × 192 pixels, zero-padded on the right, from -1 to 1."""
    width = min(192, ceil(TEXT_HEIGHT * picture.shape[1] / picture.shape[0]))
    shown = np.zeros((1, 3, TEXT_HEIGHT, 192), np.float32)
    small = resized(picture, TEXT_HEIGHT, width) / 127.5 - 1
    shown[0, :, :, :width] = small.transpose(2, 0, 1)
    return shown


def for_reading(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Resize to a height of 48 pixels, keeping the aspect ratio, from -1 to 1."""
    width = ceil(TEXT_HEIGHT * picture.shape[1] / picture.shape[0])
    small = resized(picture, TEXT_HEIGHT, width) / 127.5 - 1
    return np.ascontiguousarray(small.transpose(2, 0, 1)[None], np.float32)


def for_labels(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Resize the shorter side to 256 pixels and crop the central 224 × 224."""
    ratio = 256 / min(picture.shape[:2])
    small = resized(picture, *(round(size * ratio) for size in picture.shape[:2]))
    top, left = ((size - 224) // 2 for size in small.shape[:2])
    return _normal(small[top : top + 224, left : left + 224])


def for_objects(picture: NDArray[np.uint8], size: int) -> NDArray[np.float32]:
    """Resize to `size` × `size` pixels, whatever the aspect ratio."""
    return _normal(resized(picture, size, size))


def for_tables(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Resize the longer side to 488 pixels and zero-pad to 488 × 488."""
    ratio = 488 / max(picture.shape[:2])
    small = _normal(resized(picture, *(int(size * ratio) for size in picture.shape[:2])))
    shown = np.zeros((1, 3, 488, 488), np.float32)
    shown[:, :, : small.shape[2], : small.shape[3]] = small
    return shown


def resized(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
    """Resize an image with bilinear interpolation.

    >>> resized(np.uint8([[[0], [100]]]), 1, 4)[0, :, 0].tolist()
    [0.0, 25.0, 75.0, 100.0]
    """
    rows, columns = _weights(picture.shape[0], height), _weights(picture.shape[1], width)
    return np.einsum("ab,bcd,ec->aed", rows, picture.astype(np.float32), columns, optimize=True)


def _weights(size: int, wanted: int) -> NDArray[np.float32]:
    """The interpolation matrix, [wanted, size]."""
    places = np.clip((np.arange(wanted) + 0.5) * size / wanted - 0.5, 0, size - 1)
    distance = np.abs(places[:, None] - np.arange(size))
    return np.maximum(0, 1 - distance).astype(np.float32)


def _normal(picture: NDArray[np.float32]) -> NDArray[np.float32]:
    colours = (picture / 255 - np.float32(MEAN)) / np.float32(SPREAD)
    return np.ascontiguousarray(colours.transpose(2, 0, 1)[None], np.float32)


# ---- what is drawn ----


def _drawn() -> NDArray[np.uint8]:
    """Rings in three colours."""
    down, across = np.mgrid[:300, :400].astype(np.float32)
    rings = [np.sin(np.hypot(down - 150, across - x) / 9) for x in (120, 200, 280)]
    return ((np.stack(rings, axis=2) + 1) * 127).astype(np.uint8)


def _strokes() -> NDArray[np.uint8]:
    """Vertical strokes in groups, dark on white, resembling a line of print."""
    chance = np.random.default_rng(7)
    line = np.full((26, 290), WHITE, np.uint8)
    for left in range(6, 280, 7):
        if left % 49 > 6:
            top, bottom = chance.integers(4, 10), chance.integers(16, 23)
            line[top:bottom, left : left + 2] = BLACK
            line[chance.integers(top, bottom), left : left + 5] = BLACK
    return line
