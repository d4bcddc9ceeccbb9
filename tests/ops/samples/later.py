"""Samples of ops that releases after 1.8.5 brought, and that their saved models need."""

import numpy as np

from tests.ops.samples import Sample, numbers

X = numbers(4, 3, 5)


def written(**attrs: object) -> dict[str, object]:
    return {"dtype": 5, "shape": [1], "fp32_values": [0.5], **attrs}


SAMPLES = [
    Sample("set_value", {"Input": X}, written(axes=[1], starts=[1], ends=[9])),
    Sample(
        "set_value", {"Input": X}, written(axes=[2, 0], starts=[4, 0], ends=[-9, 4], steps=[-2, 3])
    ),
    Sample("set_value", {"Input": X}, written(axes=[0], starts=[3], ends=[1], steps=[1])),
    Sample(
        "set_value",
        {"Input": X, "ValueTensor": numbers(3, 1)},
        {"axes": [0], "starts": [-1], "ends": [0], "steps": [1], "decrease_axes": [0]},
    ),
    Sample(
        "set_value",
        {
            "Input": X,
            "ValueTensor": numbers(4, 1, 5),
            "StartsTensorList": [np.array([2], np.int64)],
            "EndsTensorList": [np.array([3], np.int64)],
            "StepsTensorList": [np.array([1], np.int64)],
        },
        {"axes": [1], "decrease_axes": [1], "none_axes": [1]},
    ),
    Sample(
        "set_value", {"Input": X[0, 0]}, written(axes=[0], starts=[2], ends=[3], decrease_axes=[0])
    ),
]
