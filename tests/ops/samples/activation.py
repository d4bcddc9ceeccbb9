"""Samples of functions of one tensor."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X, POSITIVE = numbers(3, 5, low=-2.0, high=2.0), numbers(3, 5, low=0.1, high=3.0)
ANYWHERE = ("relu", "sigmoid", "tanh", "exp", "square", "abs", "floor", "ceil", "cos", "sign")
LOW, HIGH = np.array([-1.3], np.float32), np.array([0.4], np.float32)
BOUNDS = [{"Min": LOW}, {"Max": HIGH}, {"Min": LOW, "Max": HIGH}]

SAMPLES = [
    *(Sample(name, {"X": X}, {}, ("X",)) for name in ANYWHERE),
    *(Sample(name, {"X": POSITIVE}, {}, ("X",)) for name in ("log", "sqrt")),
    Sample("relu6", {"X": X}, {"threshold": 1.2}, ("X",)),
    Sample("relu6", {"X": X}, {}, ("X",)),
    Sample("clip", {"X": X}, {"min": -0.7, "max": 1.1}, ("X",)),
    *(Sample("clip", {"X": X, **bounds}, {"min": -0.7, "max": 1.1}, ("X",)) for bounds in BOUNDS),
    Sample("pow", {"X": POSITIVE}, {"factor": 2.55}, ("X",)),
    Sample("pow", {"X": X}, {"factor": 3.0}, ("X",)),
    Sample("pow", {"X": POSITIVE, "FactorTensor": np.array([1.7], np.float32)}, {}, ("X",)),
    Sample("pow", {"X": integers(3, 4, high=9)}, {"factor": 2.0}),
    Sample("pow", {"X": integers(3, 4, high=9)}, {"factor": 2.5}),
    Sample("clip_by_norm", {"X": numbers(3, 4)}, {"max_norm": 0.5}),
    Sample("clip_by_norm", {"X": numbers(3, 4)}, {"max_norm": 50.0}),
    Sample("clip_by_norm", {"X": numbers(3, 4) * 0}, {"max_norm": 1.0}),
]
