"""Samples of reductions, softmax and top_k."""

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

SAMPLES = [
    Sample("mean", {"X": X}, {}, ("X",)),
    Sample("mean", {"X": numbers(7)}, {}, ("X",)),
    *(Sample(f"reduce_{n}", {"X": X}, attrs, ("X",)) for n in ("sum", "mean") for attrs in AXES),
    Sample("reduce_sum", {"X": numbers(4)}, {}, ("X",)),
    Sample("reduce_sum", {"X": integers(2, 3, high=9)}, {"dim": [1]}),
    Sample("reduce_sum", {"X": X}, {"dim": [1], "in_dtype": 5, "out_dtype": 6}),
    Sample("softmax", {"X": numbers(4, 7, low=-3.0, high=3.0)}, {}, ("X",)),
    Sample("softmax", {"X": X}, {"axis": 1}, ("X",)),
    Sample("softmax", {"X": numbers(6)}, {}, ("X",)),
    Sample("top_k", {"X": X}, {}, ("X",)),
    Sample("top_k", {"X": numbers(4, 6)}, {"k": 3}, ("X",)),
]
