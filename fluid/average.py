"""A weighted mean in Python, superseded by `fluid.metrics.Accuracy`."""

from __future__ import annotations

import warnings

import numpy as np

from fluid.metrics import is_number
from fluid.recording.annotations import Array

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """Weighted mean of values (numbers or arrays); warns that it is deprecated."""

    def __init__(self) -> None:
        warnings.warn(
            "WeightedAverage is deprecated, please use fluid.metrics.Accuracy instead.",
            Warning,
            stacklevel=2,
        )
        self.reset()

    def reset(self) -> None:
        """Reset the sums."""
        self.numerator: float | Array | None = None
        self.denominator: float | None = None

    def add(self, value: float | Array, weight: float) -> None:
        """Add a value with its weight; ValueError for other types."""
        if not is_number(value) and not isinstance(value, np.ndarray):
            kind = type(value).__name__
            raise ValueError(f"The 'value' must be a number or a numpy ndarray, not {kind}")
        if not is_number(weight):
            raise ValueError(f"The 'weight' must be a number, not {type(weight).__name__}")
        self.numerator = value * weight + (0 if self.numerator is None else self.numerator)
        self.denominator = weight + (self.denominator or 0)

    def eval(self) -> float | Array:
        """Return the weighted mean; ValueError without values."""
        if self.numerator is None or self.denominator is None:
            raise ValueError("There is no data to be averaged in WeightedAverage.")
        return self.numerator / self.denominator
