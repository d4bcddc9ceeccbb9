"""Samples of order: sorting, the largest, where they stand, and running sums."""

from tests.ops.samples import Sample, integers, numbers

X = numbers(2, 3, 5)
RUNS = [
    {},
    {"axis": 0},
    {"axis": 1, "exclusive": True},
    {"axis": 1, "reverse": True},
    {"axis": -1, "exclusive": True, "reverse": True},
]

SAMPLES = [
    Sample("top_k", {"X": X}, {}, ("X",)),
    Sample("top_k", {"X": numbers(4, 6)}, {"k": 3}, ("X",)),
    Sample("top_k", {"X": numbers(6)}, {"k": 2}, ("X",)),
    Sample("top_k_v2", {"X": X}, {"k": 2}, ("X",)),
    Sample("top_k_v2", {"X": X}, {"k": 2, "axis": 1, "largest": False}, ("X",)),
    *(Sample("argsort", {"X": X}, {"axis": axis}, ("X",)) for axis in (-1, 0, 1)),
    Sample("argsort", {"X": X}, {"axis": 1, "descending": True}, ("X",)),
    Sample("argsort", {"X": integers(3, 7, high=4)}, {"descending": True}),
    *(Sample(op, {"X": X}, {"axis": a}) for op in ("arg_max", "arg_min") for a in (0, 1, -1)),
    *(Sample(op, {"X": X}, {"axis": 1, "keepdims": True}) for op in ("arg_max", "arg_min")),
    Sample("arg_max", {"X": numbers(5)}, {"axis": 0}),
    Sample("arg_max", {"X": X}, {"axis": 1, "dtype": 2}),
    Sample("arg_max", {"X": X}, {"axis": 0, "flatten": True}),
    Sample("arg_min", {"X": X}, {"axis": 0, "flatten": True, "keepdims": True}),
    *(Sample("cumsum", {"X": X}, attrs, ("X",)) for attrs in RUNS),
    Sample("cumsum", {"X": X}, {"flatten": True}),
    Sample("cumsum", {"X": integers(3, 4, high=9)}, {"axis": 0}),
]
