"""Samples of quantization."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X = numbers(3, 2, 5)
ONE = np.array([0.4], np.float32)
STATE = {"InAccum": np.array([1.5], np.float32), "InState": np.array([2.5], np.float32)}
WINDOW = np.array([0.2, 0.4, 0.3], np.float32)
MOVING = ("fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max")
RANGE, SCALE = "fake_quantize_range_abs_max", "moving_average_abs_max_scale"
BYTES = integers(3, 4, low=-128, high=128).astype(np.int8)
IMAGES, FILTERS = (
    integers(*shape, low=-128, high=128).astype(np.int8) for shape in ((2, 4, 6, 7), (6, 4, 3, 2))
)
TABLE = np.concatenate(
    [
        np.array([[-1.0, 1.0], [0.5, 2.5]], np.float32),
        integers(2, 8, low=0, high=256).astype(np.uint8).view(np.float32),
    ],
    axis=1,
)


def ranged(scale: float, step: int, is_test: bool = False) -> Sample:
    """A step of quantization by a window of three batches."""
    inputs = {
        "X": X,
        "InScale": np.array([scale], np.float32),
        "Iter": np.array([step]),
        "Scales": WINDOW,
    }
    return Sample(RANGE, inputs, {"window_size": 3, "is_test": is_test})


SAMPLES = [
    *(Sample("fake_quantize_abs_max", {"X": X}, {"bit_length": b}) for b in (8, 4, 16, 1)),
    Sample("fake_quantize_abs_max", {"X": np.zeros((2, 3), np.float32)}),
    Sample("fake_channel_wise_quantize_abs_max", {"X": X}),
    Sample("fake_channel_wise_quantize_abs_max", {"X": numbers(4)}, {"bit_length": 5}),
    ranged(0.4, 0),
    ranged(2.0, 1),
    ranged(2.0, 4),
    Sample(RANGE, {"X": X * 0.1, "InScale": ONE, "Iter": np.array([4]), "Scales": WINDOW},
           {"window_size": 3}),
    ranged(0.4, 4, is_test=True),
    Sample(RANGE, {"X": X, "InScale": ONE, "Iter": np.array([4])}, {"window_size": 3}),
    Sample(RANGE, {"X": X, "InScale": ONE}, {"window_size": 3, "is_test": True}),
    *(Sample(op, {"X": X, "InScale": ONE, **STATE}, {"moving_rate": 0.5}) for op in MOVING),
    *(Sample(op, {"X": X, "InScale": ONE, **STATE}, {"is_test": True}) for op in MOVING),
    *(Sample(op, {"X": X, "InScale": ONE}, {"is_test": True, "bit_length": 4}) for op in MOVING),
    Sample(SCALE, {"X": X, **STATE}),
    Sample(SCALE, {"X": X, **STATE, "Scale": ONE}, {"moving_rate": 0.5}),
    Sample(SCALE, {"X": X, "Scale": ONE}, {"is_test": True}),
    Sample("fake_dequantize_max_abs", {"X": X * 100, "Scale": ONE}, {"max_range": 127.0}),
    Sample("fake_channel_wise_dequantize_max_abs", {"X": X, "Scales": [numbers(3)]}),
    Sample("fake_channel_wise_dequantize_max_abs", {"X": X, "Scales": [numbers(2), ONE]},
           {"quant_bits": [8, 4]}),
    Sample("dequantize_abs_max", {"X": BYTES, "Scale": ONE}, {"max_range": 127.0}),
    Sample("dequantize_log", {"X": BYTES, "Dict": numbers(128)}),
    Sample("lookup_table_dequant", {"W": TABLE, "Ids": integers(3, 1, high=2)}),
    Sample("lookup_table_dequant", {"W": TABLE, "Ids": integers(2, 3, 1, high=2)},
           {"padding_idx": 1}),
    Sample("quantize", {"Input": X * 300}),
    Sample("quantize", {"Input": X * 300}, {"Scale": 0.6, "is_negative_input": True}),
    *(Sample("dequantize", {"Input": b}, {"Scale": 2.5}) for b in (BYTES, BYTES.view(np.uint8))),
    *(Sample("requantize", {"Input": b}, {"Scale_in": 2.0, "Scale_out": 3.0})
      for b in (BYTES, BYTES.view(np.uint8))),
    *(Sample("quantize_to_int8", {"X": X}, {"scale": 0.4, "bit_length": b}) for b in (8, 4)),
    Sample("quantized_conv2d", {"Input": IMAGES, "Filter": FILTERS}, {"strides": [2, 1]}),
    Sample("quantized_conv2d", {"Input": IMAGES, "Filter": FILTERS[:, :2]},
           {"groups": 2, "paddings": [1, 2], "dilations": [2, 1]}),
    Sample("quantized_mul", {"X": BYTES, "Y": BYTES[:, ::-1].T.copy()}),
]  # fmt: skip
