"""A weighted mean in Python, superseded by `fluid.metrics.Accuracy`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fluid.metrics import is_number

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
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a value with its weight; ValueError for other types."""
        if not is_number(value) and not isinstance(value, np.ndarray):
            kind = type(value).__name__
            raise ValueError(f"The 'value' must be a number or a numpy ndarray, not {kind}")
        if not is_number(weight):
            raise ValueError(f"The 'weight' must be a number, not {type(weight).__name__}")
        empty = self.numerator is None
        self.numerator = value * weight + (0 if empty else self.numerator)
        self.denominator = weight + (0 if empty else self.denominator)

    def eval(self) -> Any:
        """Return the weighted mean; ValueError without values."""
        if self.numerator is None:
            raise ValueError("There is no data to be averaged in WeightedAverage.")
        return self.numerator / self.denominator
