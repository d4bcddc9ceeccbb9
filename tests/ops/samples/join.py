"""Samples of many tensors into one and one into many."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

A, B = numbers(2, 3, 4), numbers(2, 3, 4, seed=1)
WIDE = numbers(4, 6)
INDEX = np.array([[2], [0], [1], [2]], np.int32)
ROWS = [numbers(4, 3, seed=seed) for seed in range(3)]


def whole(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int32)


SAMPLES = [
    Sample("coalesce_tensor", {"Input": [numbers(2, 3), numbers(4)]}, {"copy_data": True}),
    Sample("coalesce_tensor", {"Input": [numbers(2, 3), numbers(4)]}, {"set_constant": True}),
    *(Sample("concat", {"X": [A, B]}, {"axis": axis}, ("X",)) for axis in (0, 2, -2)),
    Sample("join_offsets", {"X": [np.array([0, 1, 3]), np.array([0, 3, 4, 4])]}),
    Sample("concat", {"X": [A, numbers(2, 5, 4)]}, {"axis": 1}, ("X",)),
    Sample("concat", {"X": [integers(3, high=9), integers(2, high=9)]}),
    Sample("concat", {"X": [A, B], "AxisTensor": whole(1)}, {}, ("X",)),
    Sample("split", {"X": WIDE}, {"num": 3, "axis": 1}, ("X",)),
    Sample("split", {"X": WIDE}, {"num": 2, "axis": 0}, ("X",)),
    Sample("split", {"X": WIDE}, {"sections": [1, -1, 2], "axis": -1}, ("X",)),
    Sample("split", {"X": WIDE, "AxisTensor": whole(1)}, {"num": 2}, ("X",)),
    Sample(
        "split",
        {"X": WIDE, "SectionsTensorList": [whole(4), whole(2)]},
        {"sections": [-1, 2], "axis": 1},
        ("X",),
    ),
    *(Sample("stack", {"X": [A, B]}, {"axis": axis}, ("X",)) for axis in (0, 2, -1)),
    *(
        Sample("unstack", {"X": A}, {"axis": axis, "num": n}, ("X",))
        for axis, n in ((0, 2), (-1, 4))
    ),
    *(Sample("unbind", {"X": A}, {"axis": axis}, ("X",)) for axis in (1, -1)),
    Sample("multiplex", {"X": ROWS, "Ids": INDEX}, {}, ("X",)),
    Sample("meshgrid", {"X": [numbers(2), numbers(3, seed=1), numbers(4, seed=2)]}, {}, ("X",)),
]
