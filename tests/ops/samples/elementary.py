"""Samples of elementary functions: roots, logarithms, trigonometry."""

from tests.ops.samples import Sample, numbers

X, POSITIVE = numbers(3, 5, low=-2.0, high=2.0), numbers(3, 5, low=0.1, high=3.0)
INSIDE = numbers(3, 5, low=-0.95, high=0.95)
ANYWHERE = ("sin", "tan", "atan", "sinh", "cosh", "expm1", "round", "trunc", "reciprocal")

SAMPLES = [
    *(Sample(name, {"X": INSIDE if name == "tan" else X}, {}, ("X",)) for name in ANYWHERE),
    *(Sample(name, {"X": POSITIVE}, {}, ("X",)) for name in ("rsqrt", "log1p", "log2", "log10")),
    *(Sample(name, {"X": INSIDE}, {}, ("X",)) for name in ("asin", "acos", "log1p")),
    Sample("sin", {"X": numbers(7)}, {}, ("X",)),
    Sample("round", {"X": numbers(2, 3, 2, 2, low=-9.0, high=9.0)}, {}, ("X",)),
]
