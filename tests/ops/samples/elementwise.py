"""Samples of arithmetic, comparison and logic: every way two shapes may be aligned."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X, Y = numbers(2, 3, 4), numbers(2, 3, 4, seed=1)
POSITIVE, EXPONENT = numbers(2, 3, low=0.5, high=2.0), numbers(3, low=-2.0, high=3.0, seed=1)
ARITHMETIC = ("add", "sub", "mul", "div", "max", "min")
ALIGNED = [
    (numbers(3, 4, seed=1), -1),
    (numbers(3, seed=1), 1),
    (numbers(2, 1, seed=1), 0),
    (numbers(2, 1, 1, seed=1), -1),
    (numbers(1, seed=1), -1),
]
BOTH = ("X", "Y")
FACTOR, BIASES = np.array([2.5], np.float32), [{"bias": 1.0}, {"bias_after_scale": False}]
WHOLE, DIVISIONS = integers(3, 4, low=-9, high=9), ("floordiv", "mod")
DIVISORS = [
    (integers(3, 4, low=1, high=5), {}),
    (integers(4, low=-5, high=-1), {}),
    (integers(3, low=1, high=5), {"axis": 0}),
    (np.array([3]), {}),
]

SAMPLES = [
    *(Sample(f"elementwise_{name}", {"X": X, "Y": Y}, {}, BOTH) for name in ARITHMETIC),
    *(
        Sample(f"elementwise_{name}", {"X": X, "Y": y}, {"axis": axis}, BOTH)
        for name in ARITHMETIC
        for y, axis in ALIGNED
    ),
    *(
        Sample(f"elementwise_{name}", {"X": numbers(2, 1, 4), "Y": numbers(3, 1, seed=1)}, {}, BOTH)
        for name in ARITHMETIC
    ),
    *(
        Sample(f"elementwise_{name}", {"X": numbers(3), "Y": Y}, {"axis": 1}, BOTH)
        for name in ARITHMETIC
    ),
    Sample("elementwise_add", {"X": integers(2, 3, high=9), "Y": integers(3, high=9, seed=1)}),
    Sample("elementwise_pow", {"X": POSITIVE, "Y": EXPONENT}, {}, BOTH),
    Sample("elementwise_pow", {"X": POSITIVE, "Y": numbers(2, 3, seed=1)}, {"axis": 0}, BOTH),
    Sample("scale", {"X": X}, {"scale": -2.5, "bias": 0.75}, ("X",)),
    Sample("scale", {"X": X}, {"scale": 3.0, "bias": -1.0, "bias_after_scale": False}, ("X",)),
    Sample("scale", {"X": X}, {}, ("X",)),
    *(Sample("scale", {"X": X, "ScaleTensor": FACTOR}, attrs) for attrs in BIASES),
    Sample("minus", {"X": X, "Y": Y}, {}, BOTH),
    *(
        Sample(f"elementwise_{op}", {"X": WHOLE, "Y": y}, a)
        for op in DIVISIONS
        for y, a in DIVISORS
    ),
    Sample("elementwise_mod", {"X": X, "Y": Y}),
    Sample("elementwise_pow", {"X": WHOLE * 2 + 1, "Y": WHOLE % 3 - 1}),
    Sample("scale", {"X": integers(2, 3, high=9)}, {"scale": 2.0, "bias": 1.0}),
    Sample("sum", {"X": [X, Y, numbers(2, 3, 4, seed=2)]}, {}, ("X",)),
    Sample("sum", {"X": [X]}, {}, ("X",)),
    Sample("increment", {"X": np.array([3.0], np.float32)}, {"step": 0.5}),
    Sample("increment", {"X": np.array([3])}, {"step": 1.0}),
]
COMPARISONS = ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal")
A, B = integers(2, 5, high=3), integers(2, 5, high=3, seed=1)
SAMPLES += [
    *(Sample(name, {"X": A, "Y": B}) for name in COMPARISONS),
    *(Sample(name, {"X": A, "Y": B[:, 0]}, {"axis": 0}) for name in COMPARISONS),
    *(Sample(f"logical_{n}", {"X": A > 1, "Y": B > 1}) for n in ("and", "or", "xor")),
    Sample("logical_not", {"X": A > 1}),
]
