"""Samples of tests of values."""

import numpy as np

from tests.ops.samples import Sample, numbers

FINE = numbers(2, 3)
ODD = np.array([[1.0, np.inf, -2.0], [np.nan, 3.0, -np.inf]], np.float32)
TESTS = ("isfinite", "isinf", "isnan", "isfinite_v2", "isinf_v2", "isnan_v2")

NONE = np.zeros((0, 3), np.float32)

SAMPLES = [
    *(Sample(op, {"X": x}) for op in TESTS for x in (FINE, ODD)),
    *(Sample(op, {"X": NONE}) for op in TESTS[:3]),
]
