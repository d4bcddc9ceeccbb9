"""Samples of products of vectors and matrices, and traces."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

BOTH = ("X", "Y")
CUBE = numbers(2, 3, 4)


def pair(op, x, y, **attrs):
    """Return a sample for X and Y of two shapes."""
    return Sample(op, {"X": numbers(*x), "Y": numbers(*y, seed=1)}, attrs, BOTH)


def addmm(shape):
    """Return a sample for an Input of a shape."""
    inputs = {"Input": numbers(*shape), "X": numbers(3, 4, seed=1), "Y": numbers(4, 5, seed=2)}
    return Sample("addmm", inputs, {"Alpha": 2.0, "Beta": 0.5}, ("Input", "X", "Y"))


X, Y, WEIGHT = numbers(3, 4), numbers(3, 2, seed=1), numbers(5, 4, 2, seed=2)
BILINEAR = {"X": X, "Y": Y, "Weight": WEIGHT}
WITH_BIAS = {**BILINEAR, "Bias": numbers(1, 5, seed=3)}

SAMPLES = [
    pair("dot", (4,), (4,)),
    pair("dot", (3, 4), (3, 4)),
    Sample("dot", {"X": integers(3, 4, high=9), "Y": integers(3, 4, high=9, seed=1)}),
    *(addmm(shape) for shape in [(3, 5), (1, 5), (3, 1), (1, 1)]),
    pair("cross", (2, 3), (2, 3)),
    pair("cross", (3, 2, 3), (3, 2, 3)),
    pair("cross", (3, 2, 3), (3, 2, 3), dim=-1),
    pair("kron", (2, 3), (3, 4)),
    pair("kron", (3,), (2, 4)),
    pair("kron", (1, 2, 3), (2,)),
    Sample("trace", {"Input": numbers(3, 4)}, {}, ("Input",)),
    Sample("trace", {"Input": numbers(3, 4)}, {"offset": -1}, ("Input",)),
    Sample("trace", {"Input": CUBE}, {"dim1": 0, "dim2": 2, "offset": 1}, ("Input",)),
    Sample("trace", {"Input": CUBE}, {"dim1": -1, "dim2": 0}, ("Input",)),
    Sample("trace", {"Input": CUBE}, {"offset": 9}, ("Input",)),
    Sample("bilinear_tensor_product", BILINEAR, {}, ("X", "Y", "Weight")),
    Sample("bilinear_tensor_product", WITH_BIAS, {}, ("X", "Y", "Weight", "Bias")),
    Sample("equal_all", {"X": X, "Y": X.copy()}),
    Sample("equal_all", {"X": X, "Y": X + 1}),
    Sample("equal_reduce", {"X": X, "Y": X + 1}),
    Sample("equal_reduce", {"X": X, "Y": X[:1]}),
    *(
        Sample("allclose", {"Input": X, "Other": X + np.float32(by)}, {"rtol": 1e-4})
        for by in (1e-6, 1.0)
    ),
]
