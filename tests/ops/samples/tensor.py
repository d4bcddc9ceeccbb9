"""Samples of making, copying and reshaping tensors."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(2, 3, 4)
FP32, FP64, INT64, BOOL = 5, 6, 3, 0

SAMPLES = [
    Sample("fill_constant", {}, {"shape": [2, 3], "value": 0.25, "dtype": FP32}),
    Sample("fill_constant", {}, {"shape": [2], "value": 2.75, "dtype": INT64}),
    Sample("fill_constant", {}, {"shape": [1], "dtype": INT64, "str_value": "9007199254740993"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": FP64, "str_value": "0.1"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": FP32, "str_value": "-inf"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": BOOL, "value": 1.0}),
    Sample("assign_value", {}, {"shape": [2, 2], "fp32_values": [1.5, -2.0, 0.25, 3.0]}),
    Sample("assign_value", {}, {"shape": [3], "dtype": INT64, "int64_values": [1, 2**40, -3]}),
    Sample("assign_value", {}, {"shape": [2], "dtype": BOOL, "bool_values": [1, 0]}),
    Sample("fill_zeros_like", {"X": X}),
    Sample("fill_zeros_like", {"X": integers(2, 3, high=9)}),
    Sample("assign", {"X": X}, {}, ("X",)),
    Sample("assign", {"X": integers(2, 3, high=9)}),
    Sample("cast", {"X": X}, {"in_dtype": FP64, "out_dtype": FP64}, ("X",)),
    Sample("cast", {"X": X * 9}, {"in_dtype": FP32, "out_dtype": INT64}),
    Sample("cast", {"X": X}, {"in_dtype": FP32, "out_dtype": FP64}),
    Sample("cast", {"X": np.array([0.0, -0.5, 2.0])}, {"in_dtype": FP64, "out_dtype": BOOL}),
    Sample("cast", {"X": integers(2, 3, high=9)}, {"in_dtype": INT64, "out_dtype": FP32}),
    *(
        Sample("reshape2", {"X": X}, {"shape": shape}, ("X",))
        for shape in ([6, 4], [-1, 2], [0, -1], [0, 0, 2, 2], [4, 0, 2], [24])
    ),
]
