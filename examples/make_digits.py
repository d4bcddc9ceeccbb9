"""Writes `fluid/demo/data/digits.npz`: the digits of scikit-learn, in a small file.

    python examples/make_digits.py [FILE]

Content and origin of the file are described in `fluid/demo/data/README.md`.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

DIGITS = Path(__file__).resolve().parents[1] / "fluid" / "demo" / "data" / "digits.npz"


def make_digits(path: Path = DIGITS) -> None:
    """Write `images`, uint8 [1797, 8, 8] of 0 to 16, and `labels`, uint8 [1797] of 0 to 9."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    if not (np.array_equal(images, digits.images) and np.array_equal(labels, digits.target)):
        raise ValueError("scikit-learn's digits are no longer small integers")
    np.savez_compressed(path, images=images, labels=labels)


if __name__ == "__main__":
    make_digits(*map(Path, sys.argv[1:]))
