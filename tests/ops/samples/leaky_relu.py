"""Samples of activations made of straight pieces."""

from tests.ops.samples import Sample, numbers

X, WIDE = numbers(3, 5, low=-2.0, high=2.0), numbers(4, 6, low=-7.0, high=7.0)
IMAGE = numbers(2, 3, 2, 4)
CASES = [
    ("brelu", {"t_min": -0.7, "t_max": 1.1}),
    ("elu", {"alpha": 0.7}),
    ("hard_shrink", {"threshold": 0.9}),
    ("hard_sigmoid", {"slope": 0.4, "offset": 0.3}),
    ("hard_swish", {"threshold": 4.0, "scale": 5.0, "offset": 2.5}),
    ("leaky_relu", {"alpha": 0.1}),
    ("selu", {"scale": 1.3, "alpha": 0.6}),
    ("softshrink", {"lambda": 0.8}),
    ("thresholded_relu", {"threshold": -0.6}),
]


def prelu(mode, x, alpha, **attrs):
    """Return a sample of `prelu` for an Alpha of a shape."""
    inputs = {"X": x, "Alpha": numbers(*alpha, seed=1)}
    return Sample("prelu", inputs, {"mode": mode, **attrs}, ("X", "Alpha"))


SAMPLES = [
    *(Sample(op, {"X": X}, attrs, ("X",)) for op, attrs in CASES),
    *(Sample(op, {"X": WIDE}, {}, ("X",)) for op, _ in CASES),
    Sample("leaky_relu", {"X": X}, {"alpha": 1.5}, ("X",)),
    prelu("all", X, (1,)),
    prelu("all", IMAGE, (1,)),
    prelu("channel", IMAGE, (1, 3, 1, 1)),
    prelu("channel", IMAGE, (3,)),
    prelu("channel", X, (1, 5, 1, 1)),
    prelu("channel", IMAGE, (4,), data_format="NHWC"),
    prelu("element", IMAGE, (1, 3, 2, 4)),
    prelu("element", X, (1, 5)),
    Sample("maxout", {"X": numbers(2, 6, 2, 3)}, {"groups": 2}, ("X",)),
    Sample("maxout", {"X": numbers(2, 3, 2, 6)}, {"groups": 3, "axis": 3}, ("X",)),
    Sample("maxout", {"X": numbers(2, 6)}, {"groups": 6, "axis": -1}, ("X",)),
]
