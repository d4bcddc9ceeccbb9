"""Samples of accuracy, for one guess a row and for several."""

import numpy as np

from tests.ops.samples import Sample, numbers

GUESSES = np.array([[0, 1], [1, 2], [3, 0], [2, 3], [1, 0]])
LABELS = np.array([[1], [0], [3], [2], [1]])

SAMPLES = [
    Sample("accuracy", {"Out": numbers(5, 2), "Indices": GUESSES, "Label": LABELS}),
    Sample("accuracy", {"Out": numbers(5, 1), "Indices": GUESSES[:, :1].copy(), "Label": LABELS}),
]
