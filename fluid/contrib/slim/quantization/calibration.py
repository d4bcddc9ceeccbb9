"""Thresholds of activations from the values of calibration batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from compiler.ir.types import Array

__all__ = ["Samples", "kl_threshold"]

BINS, LEVELS = 2048, 255
LEAST_RANGE = 0.7
"""The smallest threshold that is tried, as a part of the largest magnitude."""


class Samples:
    """The values of variables in all batches, in memory, or in files of a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._values: dict[str, list[Array | Path]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, value: Array) -> None:
        """Keep the magnitudes of a value."""
        magnitudes = np.abs(value).ravel()
        kept = self._values.setdefault(name, [])
        if self._folder is None:
            kept.append(magnitudes)
            return
        number = list(self._values).index(name)
        path = self._folder / f"{number}_{len(kept)}.npy"
        np.save(path, magnitudes)
        kept.append(path)

    def names(self) -> Iterable[str]:
        """The variables."""
        return self._values.keys()

    def take(self, name: str) -> Array:
        """All magnitudes of a variable; its files are deleted."""
        parts = [np.load(part) if isinstance(part, Path) else part for part in self._values[name]]
        for part in self._values[name]:
            if isinstance(part, Path):
                part.unlink()
        return np.concatenate(parts)


def kl_threshold(magnitudes: Array) -> float:
    """The threshold at which 255 levels keep most of a distribution of magnitudes.

    Of all ends of a histogram with 2048 bins, from 0.7 of the largest magnitude on, it is the one
    with the least Kullback-Leibler divergence between the clipped and the quantized distribution.
    Reference: Migacz, "8-bit inference with TensorRT", 2017.
    """
    least, largest = float(magnitudes.min()), float(magnitudes.max())
    histogram, edges = np.histogram(magnitudes, bins=BINS, range=(least, largest))
    ends = [end for end in range(int((BINS - 1) * LEAST_RANGE), BINS) if histogram[end - 1]]
    if ends:
        divergences = [_divergence(histogram, end) for end in ends]
        best = ends[int(np.argmin(divergences))]
    else:
        below = np.flatnonzero(histogram[: int((BINS - 1) * LEAST_RANGE) + 1])
        best = int(below[-1]) if below.size else 0
    return (best + 0.5) * float(edges[1] - edges[0])


def _divergence(histogram: Array, end: int) -> float:
    """The divergence between the first `end` bins, with what is above in the last, and 255 levels.

    Bins that are empty stay empty in the quantized distribution; the last level has the remainder.
    """
    clipped = histogram[:end].astype(np.float64)
    clipped[-1] += histogram[end:].sum()
    starts = np.arange(LEVELS) * (end // LEVELS)
    used = clipped > 0
    sums = np.add.reduceat(histogram[:end].astype(np.float64), starts)
    counts = np.add.reduceat(used.astype(np.float64), starts)
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    lengths = np.diff(np.append(starts, end))
    quantized = np.repeat(means, lengths)[used]
    p, total = clipped[used], float(histogram.sum())
    return float((p * np.log(quantized.sum() * p) - p * np.log(total * quantized)).sum()) / total
