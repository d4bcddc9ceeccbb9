"""Samples of reductions and softmax."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(2, 3, 5)
AXES = [
    {},
    {"dim": [1]},
    {"dim": [-1], "keep_dim": True},
    {"dim": [0, 2]},
    {"dim": [0, -1], "keep_dim": True},
    {"dim": [0, 1, 2]},
    {"reduce_all": True},
    {"reduce_all": True, "keep_dim": True},
]
HOLES = np.array([[2.0, 0.0, 3.0], [0.0, 4.0, 0.0]], np.float32)
REDUCTIONS = ("sum", "mean", "max", "min", "prod")
LISTED = [
    {"axis": [1]},
    {"axis": [0, -1], "keepdim": True},
    {"axis": [0, 1, 2]},
    {"reduce_all": True},
    {"reduce_all": True, "keepdim": True},
]

SAMPLES = [
    Sample("mean", {"X": X}, {}, ("X",)),
    Sample("mean", {"X": numbers(7)}, {}, ("X",)),
    *(Sample(f"reduce_{n}", {"X": X}, attrs, ("X",)) for n in REDUCTIONS for attrs in AXES),
    *(Sample(f"reduce_{n}", {"X": X > 0}, attrs) for n in ("all", "any") for attrs in AXES),
    *(Sample("frobenius_norm", {"X": X}, attrs, ("X",)) for attrs in AXES),
    *(Sample("logsumexp", {"X": X}, attrs, ("X",)) for attrs in LISTED),
    Sample("reduce_prod", {"X": HOLES}, {"dim": [1]}, ("X",)),
    Sample("reduce_prod", {"X": numbers(4)}, {}, ("X",)),
    Sample("reduce_max", {"X": integers(2, 3, high=9)}, {"dim": [1]}),
    Sample("reduce_mean", {"X": integers(2, 3, low=-9, high=4)}, {"dim": [1]}),
    Sample("reduce_sum", {"X": numbers(4)}, {}, ("X",)),
    Sample("reduce_sum", {"X": integers(2, 3, high=9)}, {"dim": [1]}),
    Sample("reduce_sum", {"X": X}, {"dim": [1], "in_dtype": 5, "out_dtype": 6}),
    Sample("softmax", {"X": numbers(4, 7, low=-3.0, high=3.0)}, {}, ("X",)),
    Sample("softmax", {"X": X}, {"axis": 1}, ("X",)),
    Sample("softmax", {"X": numbers(6)}, {}, ("X",)),
    *(Sample("log_softmax", {"X": X}, {"axis": axis}, ("X",)) for axis in (-1, 0, 1)),
]
