"""Samples of parameter updates."""

import numpy as np

from tests.ops.samples import Sample, numbers

PARAM = {"Param": numbers(3, 4), "Grad": numbers(3, 4, seed=1)}
BASE = PARAM | {"LearningRate": np.array([0.1], np.float32)}
VELOCITY = BASE | {"Velocity": numbers(3, 4, seed=2)}
MOMENTS = BASE | {
    "Moment1": numbers(3, 4, seed=2),
    "Moment2": numbers(3, 4, low=0.0, seed=3),
    "Beta1Pow": np.array([0.9**3], np.float32),
    "Beta2Pow": np.array([0.999**3], np.float32),
}

LARGEST = BASE | {
    "Moment": numbers(3, 4, seed=2),
    "InfNorm": numbers(3, 4, low=0.1, seed=3),
    "Beta1Pow": np.array([0.9**3], np.float32),
}

SAMPLES = [
    Sample("sgd", BASE),
    Sample("momentum", VELOCITY, {"mu": 0.9}),
    Sample("momentum", VELOCITY, {"mu": 0.9, "use_nesterov": True}),
    Sample("adam", MOMENTS),
    Sample("adam", MOMENTS, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    Sample("adamax", LARGEST),
    Sample("adamax", LARGEST, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
]
