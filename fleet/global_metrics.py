"""Metrics of predicted click rates over all workers, from the counts of each.

Definitions are those of release 1.8.5's `FleetUtil.get_global_metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from compiler.ir.types import Array

__all__ = ["Metrics", "area", "bucket_error", "metrics_of"]

SPAN = 0.01
"""Maximum range of predicted rates in one bucket."""
CERTAIN = 0.05
"""A bucket is complete when the expected relative error of its rate is below this."""


class Metrics(NamedTuple):
    """The results of `get_global_metrics`, in this order."""

    auc: float
    bucket_error: float
    mae: float
    rmse: float
    actual_ctr: float
    predicted_ctr: float
    copc: float
    mean_predict_qvalue: float
    total_ins_num: int


def metrics_of(positive: Array, negative: Array, sums: Mapping[str, float]) -> Metrics:
    """The metrics of counts by predicted rate, and of sums over all examples.

    `positive` and `negative` are [n], ascending; `sums` has `sqrerr`, `abserr`, `prob`, `q`, `pos`
    and `total`, the number of examples, which must not be 0.
    """
    total = sums["total"]
    actual, predicted = sums["pos"] / total, sums["prob"] / total
    return Metrics(
        auc=area(positive, negative),
        bucket_error=bucket_error(positive, negative),
        mae=sums["abserr"] / total,
        rmse=math.sqrt(sums["sqrerr"] / total),
        actual_ctr=actual,
        predicted_ctr=predicted,
        copc=actual / predicted if predicted > 1e-6 else 0.0,
        mean_predict_qvalue=sums["q"] / total,
        total_ins_num=int(total),
    )


def area(positive: Array, negative: Array) -> float:
    """The area under the ROC curve of counts by predicted probability, ascending; 0.5 for no curve.

    >>> area(np.array([0, 1]), np.array([1, 0]))
    1.0
    """
    above_positive = np.cumsum(positive[::-1], dtype=np.float64)
    above_negative = np.cumsum(negative[::-1], dtype=np.float64)
    if not len(positive) or above_positive[-1] * above_negative[-1] == 0:
        return 0.5
    whole = np.trapezoid(
        np.concatenate([[0], above_positive]), np.concatenate([[0], above_negative])
    )
    return float(whole / (above_positive[-1] * above_negative[-1]))


def bucket_error(positive: Array, negative: Array) -> float:
    """The mean relative error of predicted rates, over ranges with enough examples; 0.0 for none.

    Adjacent rates are merged until the expected statistical error is below 5 %, but at most over a
    range of 0.01.
    """
    errors, counted = 0.0, 0.0
    last, shown, clicked, expected = -1.0, 0.0, 0.0, 0.0
    for index, (clicks, others) in enumerate(zip(positive, negative, strict=True)):
        rate = index / len(positive)
        if abs(rate - last) > SPAN:
            last, shown, clicked, expected = rate, 0.0, 0.0, 0.0
        shown += clicks + others
        clicked += clicks
        expected += rate * (clicks + others)
        if _is_certain(expected, shown):
            errors += abs(clicked / expected - 1) * shown
            counted += shown
            last = -1.0
    return float(errors / counted) if counted else 0.0


def _is_certain(expected: float, shown: float) -> bool:
    """Whether the statistical error of a rate of `expected` clicks of `shown` is below 5 %."""
    if not expected:
        return False
    rate = expected / shown
    return math.sqrt(max(0.0, 1 - rate) / (rate * shown)) < CERTAIN
