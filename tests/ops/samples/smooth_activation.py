"""Samples of smooth activations."""

import numpy as np

from tests.ops.samples import Sample, numbers

X, WIDE = numbers(3, 5, low=-2.0, high=2.0), numbers(4, 6, low=-9.0, high=9.0)
PLAIN = ("logsigmoid", "softplus", "softsign", "tanh_shrink", "silu", "erf", "gelu")
CASES = [
    ("softplus", {"beta": 2.0, "threshold": 1.5}),
    ("stanh", {"scale_a": 0.5, "scale_b": 2.0}),
    ("swish", {"beta": 1.7}),
    ("mish", {}),
    ("soft_relu", {}),
    ("gelu", {"approximate": True}),
]

SAMPLES = [
    *(Sample(op, {"X": x}, {}, ("X",)) for op in PLAIN for x in (X, WIDE)),
    *(Sample(op, {"X": x}, attrs, ("X",)) for op, attrs in CASES for x in (X, WIDE)),
    Sample("gelu", {"X": numbers(2, 2).astype(np.float64)}, {}, ("X",)),
]
