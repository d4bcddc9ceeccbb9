"""Samples of norms and distances."""

from tests.ops.samples import Sample, numbers

X, Y = numbers(2, 3, 5), numbers(2, 3, 5, seed=1)
BOTH = ("X", "Y")
INFINITY = float("inf")
ORDERS = (0.0, 1.0, 2.0, 3.5, 0.5, -2.0, INFINITY, -INFINITY)
KEPT = [{"axis": 0, "keepdim": True}, {"axis": 1}, {"asvector": True}]

SAMPLES = [
    *(Sample("norm", {"X": X}, {"axis": axis}, ("X",)) for axis in (0, 1, -1)),
    Sample("norm", {"X": X}, {"axis": 1, "epsilon": 0.5}, ("X",)),
    *(Sample("p_norm", {"X": X}, {"porder": p}, ("X",)) for p in ORDERS),
    *(Sample("p_norm", {"X": X}, {"porder": 3.0, **attrs}, ("X",)) for attrs in KEPT),
    Sample("p_norm", {"X": numbers(4)}, {"axis": 0}, ("X",)),
    *(Sample("dist", {"X": X, "Y": Y}, {"p": p}, BOTH) for p in ORDERS),
    Sample("dist", {"X": X, "Y": numbers(3, 1, seed=1)}, {"p": 2.0}, BOTH),
    Sample("squared_l2_norm", {"X": X}, {}, ("X",)),
    Sample("l1_norm", {"X": X}, {}, ("X",)),
    Sample("squared_l2_distance", {"X": X, "Y": Y}, {}, BOTH),
    Sample("squared_l2_distance", {"X": X, "Y": Y[:1]}, {}, BOTH),
    Sample("cos_sim", {"X": numbers(4, 3), "Y": numbers(4, 3, seed=1)}, {}, BOTH),
    Sample("cos_sim", {"X": numbers(4, 3), "Y": numbers(1, 3, seed=1)}, {}, BOTH),
    Sample("cos_sim", {"X": X, "Y": Y[1:]}, {}, BOTH),
]
