"""Samples of elements by their places and of parts of tensors."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(5, 3)
CUBE = numbers(3, 4, 2)
ROWS = np.array([3, 0, 4])
TWICE = np.array([3, 0, 3, 4], np.int32)
PLACES = np.array([[1, 2], [0, 3], [1, 2], [2, 0]])
COLUMNS = integers(5, 4, high=3)
MASK = numbers(5, 3, seed=3) > 0.2


def whole(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int32)


def sliced(axes: list[int], starts: list[int], ends: list[int], *gone: int) -> Sample:
    attrs = {"axes": axes, "starts": starts, "ends": ends, "decrease_axis": list(gone)}
    return Sample("slice", {"Input": CUBE}, attrs, ("Input",))


def strided(axes: list[int], starts: list[int], ends: list[int], strides: list[int]) -> Sample:
    attrs = {"axes": axes, "starts": starts, "ends": ends, "strides": strides}
    return Sample("strided_slice", {"Input": CUBE}, attrs, ("Input",))


def cut(op: str, told: dict[str, object], **attrs: object) -> Sample:
    return Sample(op, {"Input": CUBE, **told}, {"axes": [0, 1], **attrs}, ("Input",))


SAMPLES = [
    Sample("gather", {"X": X, "Index": ROWS}, {}, ("X",)),
    Sample("gather", {"X": X, "Index": ROWS[:, np.newaxis]}, {}, ("X",)),
    Sample("gather", {"X": X, "Index": TWICE}, {"overwrite": False}, ("X",)),
    Sample("gather", {"X": X, "Index": TWICE}),
    Sample("gather", {"X": CUBE, "Index": TWICE[:2]}, {"axis": 1}, ("X",)),
    Sample("gather", {"X": CUBE, "Index": ROWS[:2], "Axis": whole(1)}, {}, ("X",)),
    Sample("gather_nd", {"X": CUBE, "Index": PLACES}, {}, ("X",)),
    Sample("gather_nd", {"X": CUBE, "Index": PLACES[:, :0]}, {}, ("X",)),
    Sample("gather_nd", {"X": CUBE, "Index": PLACES[:, :1].reshape(2, 2, 1)}, {}, ("X",)),
    Sample("scatter", {"X": X, "Ids": ROWS, "Updates": numbers(3, 3, seed=1)}, {}, ("Updates",)),
    Sample("scatter", {"X": X, "Ids": TWICE, "Updates": numbers(4, 3, seed=1)}),
    Sample(
        "scatter",
        {"X": X, "Ids": TWICE, "Updates": numbers(4, 3, seed=1)},
        {"overwrite": False},
        ("Updates",),
    ),
    Sample(
        "scatter_nd_add",
        {"X": CUBE, "Index": PLACES, "Updates": numbers(4, 2, seed=1)},
        {},
        ("X", "Updates"),
    ),
    *(
        Sample("index_select", {"X": CUBE, "Index": TWICE[1:3] % size}, {"dim": dim}, ("X",))
        for dim, size in ((0, 3), (1, 4), (-1, 2))
    ),
    Sample("index_sample", {"X": X, "Index": COLUMNS}, {}, ("X",)),
    Sample("where", {"Condition": MASK, "X": X, "Y": numbers(5, 3, seed=1)}, {}, ("X", "Y")),
    Sample("where_index", {"Condition": MASK}),
    Sample("masked_select", {"X": X, "Mask": MASK}, {}, ("X",)),
    sliced([0], [1], [3]),
    sliced([0, 1], [-2, -3], [100, -1]),
    sliced([2, 1], [0, 1], [1, 4]),
    sliced([1], [2], [3], 1),
    sliced([0, 1, 2], [0, -1, 1], [1, 1000, 2], 0, 1, 2),
    cut("slice", {"StartsTensor": whole(1, 0), "EndsTensor": whole(3, 2)}),
    cut(
        "slice",
        {"StartsTensorList": [whole(1), whole(-3)], "EndsTensorList": [whole(2), whole(9)]},
        starts=[1, -1],
        ends=[2, -1],
        infer_flags=[1, -1],
        decrease_axis=[0],
    ),
    strided([0], [0], [3], [2]),
    strided([1, 2], [3, -1], [0, -100], [-2, -1]),
    strided([1], [-1], [-1], [-1]),
    cut(
        "strided_slice",
        {"StartsTensor": whole(2, 0), "EndsTensor": whole(0, 4), "StridesTensor": whole(-1, 3)},
    ),
    cut(
        "strided_slice",
        {"StridesTensorList": [whole(2), whole(1)]},
        starts=[0, 1],
        ends=[3, 3],
        strides=[-1, 1],
        infer_flags=[-1, 1],
    ),
    Sample("crop", {"X": X}, {"shape": [2, 2], "offsets": [1, 1]}, ("X",)),
    Sample("crop", {"X": X, "Y": numbers(3, 2), "Offsets": whole(2, 0)}, {}, ("X",)),
    Sample("crop_tensor", {"X": X}, {"shape": [-1, 2], "offsets": [1, 0]}, ("X",)),
    Sample("crop_tensor", {"X": X, "Shape": whole(2, -1), "Offsets": whole(3, 1)}, {}, ("X",)),
    Sample(
        "crop_tensor",
        {
            "X": X,
            "ShapeTensor": [whole(2), whole(1)],
            "OffsetsTensor": [whole(3), whole(1)],
        },
        {"shape": [0, 1], "offsets": [-1, 1]},
        ("X",),
    ),
    *(Sample("reverse", {"X": CUBE}, {"axis": axis}, ("X",)) for axis in ([0], [1, 2])),
    *(Sample("flip", {"X": CUBE}, {"dims": dims}, ("X",)) for dims in ([1], [0, -1])),
    Sample("flip", {"X": CUBE}, {"axis": [2]}, ("X",)),
    Sample("roll", {"X": CUBE}, {"shifts": [1, -2], "dims": [0, 1]}, ("X",)),
    Sample("roll", {"X": CUBE}, {"shifts": [5]}, ("X",)),
    Sample("roll", {"X": CUBE, "ShiftsTensor": whole(3)}, {"axis": [1]}, ("X",)),
]
