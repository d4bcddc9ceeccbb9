"""The digit images of the demo: loading, batching with augmentation, and text rendering."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

DIGITS = Path(__file__).parent / "data" / "digits.npz"
TRAINED = 1500
"""Number of digits to train on; the others are held out."""

SIDE = 16
"""Width and height of the network's input: each 8×8 image is upsampled by 2."""

SHIFT = 2
"""Maximum random shift in pixels, in each direction, during training."""

SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Digits:
    """`pixels`, float32 [N, 1, 16, 16] from 0 to 1, and `labels`, int64 [N, 1]."""

    pixels: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


def load_digits() -> tuple[Digits, Digits]:
    """Load the training and the held-out digits; see `fluid/demo/data/README.md`."""
    with np.load(DIGITS, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    doubled = images.repeat(2, axis=1).repeat(2, axis=2)[:, np.newaxis]
    pixels = doubled.astype(np.float32) / 16
    labels = labels.astype(np.int64)[:, np.newaxis]
    return Digits(pixels[:TRAINED], labels[:TRAINED]), Digits(pixels[TRAINED:], labels[TRAINED:])


def batches(digits: Digits, size: int, generator: np.random.Generator) -> Iterator[Digits]:
    """All digits once in random order, each randomly shifted; an incomplete last batch is dropped.

    Without the shifts, accuracy on held-out digits is only about 95 %.
    """
    order = generator.permutation(len(digits))
    for start in range(0, len(digits) - size + 1, size):
        chosen = order[start : start + size]
        yield Digits(moved(digits.pixels[chosen], generator), digits.labels[chosen])


def moved(pixels: Array, generator: np.random.Generator) -> Array:
    """Shift each image randomly by up to `SHIFT` pixels in each direction."""
    margins = ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT))
    padded = np.pad(pixels, margins)
    down, right = generator.integers(0, 2 * SHIFT + 1, (2, len(pixels), 1))
    side = np.arange(SIDE)
    which = np.arange(len(pixels))[:, np.newaxis, np.newaxis]
    rows, columns = (down + side)[:, :, np.newaxis], (right + side)[:, np.newaxis, :]
    return padded[which, 0, rows, columns][:, np.newaxis]


def picture(pixels: Array) -> list[str]:
    """Render a digit [1, 16, 16] as 8 lines of 16 characters, darker for more ink.

    >>> picture(np.full((1, 16, 16), 0.5))[0]
    '▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒'
    """
    ink = np.rint(pixels[0, ::2, ::2] * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[shade] * 2 for shade in row) for row in ink]


def gallery(digits: Digits, predictions: Array, number: int = 4) -> str:
    """Digits next to each other with their predictions; the last one is wrong, if any is."""
    right = predictions.argmax(axis=1) == digits.labels[:, 0]
    shown = [*np.flatnonzero(right)[:number], *np.flatnonzero(~right)[:1]][-number:]
    images = [picture(digits.pixels[index]) for index in shown]
    captions = [_caption(predictions[index], int(digits.labels[index, 0])) for index in shown]
    width = len(images[0][0])
    rows = [*zip(*images, strict=True), [caption.center(width) for caption in captions]]
    return "\n".join(("  " + "  ".join(row)).rstrip() for row in rows)


def _caption(probabilities: Array, label: int) -> str:
    predicted = int(probabilities.argmax())
    share = f"{predicted}, {probabilities[predicted]:.0%} sure"
    return share if predicted == label else f"{share}: no, {label}"
