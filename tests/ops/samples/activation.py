"""Samples of functions of one tensor."""

from tests.ops.samples import Sample, numbers

X, POSITIVE = numbers(3, 5, low=-2.0, high=2.0), numbers(3, 5, low=0.1, high=3.0)
ANYWHERE = ("relu", "sigmoid", "tanh", "exp", "square", "abs", "floor", "ceil", "cos", "sign")

SAMPLES = [
    *(Sample(name, {"X": X}, {}, ("X",)) for name in ANYWHERE),
    *(Sample(name, {"X": POSITIVE}, {}, ("X",)) for name in ("log", "sqrt")),
    Sample("relu6", {"X": X}, {"threshold": 1.2}, ("X",)),
    Sample("relu6", {"X": X}, {}, ("X",)),
    Sample("clip", {"X": X}, {"min": -0.7, "max": 1.1}, ("X",)),
    Sample("pow", {"X": POSITIVE}, {"factor": 2.55}, ("X",)),
    Sample("pow", {"X": X}, {"factor": 3.0}, ("X",)),
    Sample("clip_by_norm", {"X": numbers(3, 4)}, {"max_norm": 0.5}),
    Sample("clip_by_norm", {"X": numbers(3, 4)}, {"max_norm": 50.0}),
    Sample("clip_by_norm", {"X": numbers(3, 4) * 0}, {"max_norm": 1.0}),
]
