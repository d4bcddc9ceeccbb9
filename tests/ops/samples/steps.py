"""Samples of what `recurrent` becomes around its loop."""

import numpy as np

from tests.ops.samples import Sample, numbers

STEP, COUNT = np.array([1], np.int64), np.array([4], np.int64)

SAMPLES = [
    Sample("step_count", {"X": numbers(3, 2)}),
    Sample("step_index", {"I": STEP, "Count": COUNT}),
    Sample("step_index", {"I": STEP, "Count": COUNT}, {"reverse": True}),
    Sample("take_step", {"X": numbers(3, 2, 4), "I": STEP}),
]
