"""Samples of other shapes: reshape and its like, transposes, copies, padding, diagonals."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(2, 3, 4)
LONG = numbers(5, 2, 4)
ONES = numbers(1, 3, 1)
ROWS = numbers(5, 1)
PICTURES = numbers(2, 3, 4, 5)
BLOCK = numbers(1, 2, 3, 4, 3)


def whole(*sizes: int) -> np.ndarray:
    return np.array(sizes, np.int32)


SAMPLES = [
    *(
        Sample(op, {"X": X}, {"shape": shape}, ("X",))
        for op in ("reshape", "reshape2")
        for shape in ([6, 4], [-1, 2], [0, -1], [0, 0, 2, 2], [4, 0, 2], [24])
    ),
    *(
        Sample(op, {"X": LONG, **told}, {"shape": shape}, ("X",))
        for op in ("reshape", "reshape2")
        for told, shape in (
            ({"Shape": whole(4, -1)}, []),
            ({"Shape": whole(4, 10)}, [4, 10]),
            ({"ShapeTensor": [whole(4), whole(10)]}, [-1, 10]),
        )
    ),
    *(Sample("flatten", {"X": X}, {"axis": axis}, ("X",)) for axis in (0, 1, 3)),
    *(Sample("flatten2", {"X": X}, {"axis": axis}, ("X",)) for axis in (0, 2)),
    Sample("flatten_contiguous_range", {"X": X}, {"start_axis": 0, "stop_axis": 1}, ("X",)),
    Sample("flatten_contiguous_range", {"X": X}, {"start_axis": 1, "stop_axis": -1}, ("X",)),
    *(Sample("squeeze", {"X": ONES}, {"axes": axes}, ("X",)) for axes in ([0], [0, -1])),
    *(Sample("squeeze2", {"X": ONES}, {"axes": axes}, ("X",)) for axes in ([2], [-3, 2])),
    *(Sample("unsqueeze", {"X": X}, {"axes": axes}, ("X",)) for axes in ([0], [-1, 1])),
    *(Sample("unsqueeze2", {"X": X}, {"axes": axes}, ("X",)) for axes in ([3], [0, -1, 2])),
    Sample("unsqueeze", {"X": LONG, "AxesTensor": whole(0, 2)}, {}, ("X",)),
    Sample("unsqueeze2", {"X": LONG, "AxesTensorList": [whole(1), whole(-1)]}, {}, ("X",)),
    *(
        Sample(op, {"X": X}, {"axis": axis}, ("X",))
        for op in ("transpose", "transpose2")
        for axis in ([0, 2, 1], [2, 0, 1], [2, 1, 0])
    ),
    Sample("transpose2", {"X": integers(2, 3, high=9)}, {"axis": [1, 0]}),
    Sample("expand", {"X": X}, {"expand_times": [2, 1, 3]}, ("X",)),
    Sample("expand", {"X": LONG, "ExpandTimes": whole(1, 2, 1)}, {}, ("X",)),
    Sample(
        "expand",
        {"X": X, "expand_times_tensor": [whole(1), whole(2), whole(1)]},
        {"expand_times": [1, -1, 1]},
        ("X",),
    ),
    Sample("expand_as", {"X": X, "target_tensor": numbers(4, 3, 8)}, {}, ("X",)),
    Sample("tile", {"X": X}, {"repeat_times": [2, 1]}, ("X",)),
    Sample("tile", {"X": X}, {"repeat_times": [2, 1, 2, 1]}, ("X",)),
    Sample("tile", {"X": LONG, "RepeatTimes": whole(2, 1, 1)}, {}, ("X",)),
    Sample("tile", {"X": X, "repeat_times_tensor": [whole(2), whole(1)]}, {}, ("X",)),
    Sample("expand_v2", {"X": ONES}, {"shape": [2, 4, -1, 5]}, ("X",)),
    Sample("expand_v2", {"X": ROWS, "Shape": whole(4, 5, 3)}, {}, ("X",)),
    Sample(
        "expand_v2",
        {"X": ONES, "expand_shapes_tensor": [whole(4), whole(3), whole(1)]},
        {"shape": [-1, 3, 1]},
        ("X",),
    ),
    Sample("expand_as_v2", {"X": ONES, "Y": numbers(2, 4, 3, 5)}, {}, ("X",)),
    Sample("expand_as_v2", {"X": ONES}, {"target_shape": [4, 3, 5]}, ("X",)),
    Sample("pad", {"X": X}, {"paddings": [1, 0, 0, 2, 1, 1], "pad_value": 2.5}, ("X",)),
    Sample("pad", {"X": integers(3, high=9)}, {"paddings": [1, 2], "pad_value": 7.0}),
    *(
        Sample("pad2d", {"X": PICTURES}, {"paddings": edges, "mode": mode, **layout}, ("X",))
        for mode in ("constant", "reflect", "edge")
        for edges, layout in (([1, 0, 2, 1], {}), ([0, 2, 1, 0], {"data_format": "NHWC"}))
    ),
    Sample("pad2d", {"X": PICTURES}, {"paddings": [-1, 1, 0, -2], "pad_value": 0.5}, ("X",)),
    Sample("pad2d", {"X": PICTURES, "Paddings": whole(1, 2, 0, 1)}, {"mode": "edge"}, ("X",)),
    *(
        Sample("pad3d", {"X": BLOCK}, {"paddings": [1, 2, 0, 1, 1, 0], "mode": mode}, ("X",))
        for mode in ("constant", "reflect", "replicate", "circular")
    ),
    Sample("pad3d", {"X": BLOCK}, {"paddings": [1, 0, 0, 0, 0, 1], "data_format": "NDHWC"}, ("X",)),
    Sample("pad_constant_like", {"X": numbers(3, 3, 5), "Y": X}, {"pad_value": 1.5}, ("Y",)),
    Sample("eye", {}, {"num_rows": 3, "num_columns": 4}),
    Sample("eye", {}, {"num_rows": 3, "dtype": 3}),
    Sample("diag", {"Diagonal": numbers(4)}),
    Sample("diag_v2", {"X": numbers(3)}, {"offset": -1, "padding_value": 9.0}),
    Sample("diag_v2", {"X": numbers(3, 5)}, {"offset": 2}),
    Sample("diag_embed", {"Input": numbers(2, 3)}, {"offset": 1, "dim1": 0, "dim2": 2}),
    Sample("diag_embed", {"Input": numbers(2, 3)}, {"offset": -2}),
    *(
        Sample("tril_triu", {"X": X}, {"lower": lower, "diagonal": diagonal}, ("X",))
        for lower, diagonal in ((True, 0), (False, 1), (False, -1))
    ),
]
