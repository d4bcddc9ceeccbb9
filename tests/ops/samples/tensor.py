"""Samples of copies and casts, constants and ranges, and encodings of integers."""

import math

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(2, 3, 4)
LIKE = numbers(5, 3)
BOOL, INT32, INT64, FP16, FP32, FP64 = 0, 2, 3, 4, 5, 6
LOD = [np.array([0, 2, 5])]


def single(number: float, dtype: str = "float32") -> np.ndarray:
    return np.array([number], dtype)


SAMPLES = [
    Sample("fill_constant", {}, {"shape": [2, 3], "value": 0.25, "dtype": FP32}),
    Sample("fill_constant", {}, {"shape": [2], "value": 2.75, "dtype": INT64}),
    Sample("fill_constant", {}, {"shape": [1], "dtype": INT64, "str_value": "9007199254740993"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": FP64, "str_value": "0.1"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": FP32, "str_value": "-inf"}),
    Sample("fill_constant", {}, {"shape": [3], "dtype": BOOL, "value": 1.0}),
    Sample("fill_constant", {}, {"shape": [2], "dtype": FP16, "value": 1.5}),
    Sample("fill_constant", {"ValueTensor": single(2.5)}, {"shape": [2, 2]}),
    Sample(
        "fill_constant",
        {"ShapeTensorList": [single(2, "int32"), single(3, "int32")]},
        {"value": 1.5, "shape": [-1, 3]},
    ),
    Sample("assign_value", {}, {"shape": [2, 2], "fp32_values": [1.5, -2.0, 0.25, 3.0]}),
    Sample("assign_value", {}, {"shape": [3], "dtype": INT64, "int64_values": [1, 2**40, -3]}),
    Sample("assign_value", {}, {"shape": [3], "dtype": INT32, "int32_values": [1, 2, -3]}),
    Sample("assign_value", {}, {"shape": [2], "dtype": BOOL, "bool_values": [1, 0]}),
    Sample("assign_value", {}, {"shape": [7, 10], "dtype": INT64, "int64_values": [*range(70)]}),
    Sample("fill", {}, {"shape": [2, 2], "value": [1.5, 2.0, 0.0, -3.0], "dtype": FP32}),
    Sample("fill", {}, {"shape": [2], "value": [1.0, 3.0], "dtype": INT64}),
    Sample("fill", {}, {"shape": [66], "value": [math.inf, *range(65)], "dtype": FP32}),
    Sample("fill_zeros_like", {"X": X}),
    Sample("fill_zeros_like", {"X": integers(2, 3, high=9)}),
    Sample("fill_zeros_like2", {"X": X}, {"dtype": INT64}),
    Sample("fill_any_like", {"X": X}, {"value": 2.5}),
    Sample("fill_any_like", {"X": X}, {"value": 2.5, "dtype": INT32}),
    Sample("fill_any_like", {"X": integers(2, 3, high=9)}, {"value": 1.0, "dtype": BOOL}),
    Sample("fill_constant_batch_size_like", {"Input": LIKE}, {"shape": [-1, 2], "value": 1.5}),
    Sample(
        "fill_constant_batch_size_like",
        {"Input": LIKE},
        {"shape": [4, 2], "value": 1.5, "dtype": INT64, "input_dim_idx": 1, "output_dim_idx": 1},
    ),
    Sample("fill_constant_batch_size_like", {"Input": LIKE, "Input_lod": LOD}, {"shape": [-1, 2]}),
    Sample("range", {"Start": single(1), "End": single(2), "Step": single(0.3)}),
    Sample(
        "range",
        {"Start": single(7, "int64"), "End": single(0, "int64"), "Step": single(-2, "int64")},
    ),
    Sample("linspace", {"Start": single(-1), "Stop": single(2), "Num": single(5, "int32")}),
    Sample(
        "linspace",
        {"Start": single(1), "Stop": single(9), "Num": single(3, "int32")},
        {"dtype": INT64},
    ),
    Sample("assign", {"X": X}, {}, ("X",)),
    Sample("to_device", {"X": X}),
    Sample("to_host", {"X": X}),
    Sample("assign", {"X": integers(2, 3, high=9)}),
    Sample("cast", {"X": X}, {"in_dtype": FP64, "out_dtype": FP64}, ("X",)),
    Sample("cast", {"X": X * 9}, {"in_dtype": FP32, "out_dtype": INT64}),
    Sample("cast", {"X": X}, {"in_dtype": FP32, "out_dtype": FP64}),
    Sample("cast", {"X": np.array([0.0, -0.5, 2.0])}, {"in_dtype": FP64, "out_dtype": BOOL}),
    Sample("cast", {"X": integers(2, 3, high=9)}, {"in_dtype": INT64, "out_dtype": FP32}),
    Sample("shape", {"Input": X}),
    Sample("size", {"Input": X}),
    Sample("is_empty", {"X": X}),
    Sample("one_hot", {"X": integers(4, 1, high=5)}, {"depth": 5}),
    Sample("one_hot", {"X": integers(2, 3, 1, high=5)}, {"depth": 6, "dtype": INT64}),
    Sample("one_hot", {"X": integers(4, 1, high=5), "depth_tensor": single(6, "int32")}),
    Sample(
        "one_hot",
        {"X": np.array([[-1], [7], [2]])},
        {"depth": 5, "allow_out_of_range": True},
    ),
    Sample("one_hot_v2", {"X": integers(2, 3, high=5)}, {"depth": 5}),
    Sample("one_hot_v2", {"X": integers(4, high=5).astype(np.int32)}, {"depth": 7}),
    *(
        Sample(
            "shard_index",
            {"X": integers(6, 1, high=20)},
            {"index_num": 20, "nshards": 3, "shard_id": shard},
        )
        for shard in (0, 2)
    ),
    Sample("unique", {"X": integers(9, high=4)}, {"dtype": INT64}),
    Sample("unique", {"X": integers(9, high=4)}, {"dtype": INT32, "is_sorted": True}),
    Sample("unique", {"X": integers(5, 2, high=2)}, {"is_sorted": True, "axis": [0]}),
    Sample("unique_with_counts", {"X": integers(9, high=4)}, {"dtype": INT32}),
]
