"""Samples of parameter updates, by dense gradients and by sparse ones whose rows repeat."""

import numpy as np

from tests.ops.samples import Sample, numbers

PARAM = {"Param": numbers(3, 4), "Grad": numbers(3, 4, seed=1)}
BASE = PARAM | {"LearningRate": np.array([0.1], np.float32)}
VELOCITY = BASE | {"Velocity": numbers(3, 4, seed=2)}
NESTEROV = {"use_nesterov": True}
STEPPED = {"X": numbers(3, 4), "current_step": np.array([3.0], np.float32)}
NUMBERS = {"current_step": STEPPED["current_step"], "nranks": np.array([2.0], np.float32)}
DGC = {name: numbers(3, 4, seed=i) for i, name in enumerate(("U", "V", "Grad", "Param"))} | NUMBERS
POWERS = {
    "Beta1Pow": np.array([0.9**3], np.float32),
    "Beta2Pow": np.array([0.999**3], np.float32),
}
MOMENTS = BASE | POWERS | {
    "Moment1": numbers(3, 4, seed=2),
    "Moment2": numbers(3, 4, low=0.0, seed=3),
}  # fmt: skip
BETAS = {"Beta1Tensor": np.array([0.7], np.float32), "Beta2Tensor": np.array([0.9], np.float32)}
LARGEST = BASE | {
    "Moment": numbers(3, 4, seed=2),
    "InfNorm": numbers(3, 4, low=0.1, seed=3),
    "Beta1Pow": np.array([0.9**3], np.float32),
}
SQUARES = BASE | {"Moment": numbers(3, 4, low=0.1, seed=2)}
DISTANCES = PARAM | {
    "AvgSquaredGrad": numbers(3, 4, low=0.0, seed=2),
    "AvgSquaredUpdate": numbers(3, 4, low=0.0, seed=3),
}
MEANS = BASE | {
    "MeanSquare": numbers(3, 4, low=1.0, high=2.0, seed=2),
    "MeanGrad": numbers(3, 4, seed=3),
    "Moment": numbers(3, 4, seed=4),
}
LEADER = BASE | {
    "SquaredAccumulator": numbers(3, 4, low=0.1, seed=2),
    "LinearAccumulator": numbers(3, 4, seed=3),
}
SPARSE = {
    "Param": numbers(7, 3),
    "Grad": numbers(5, 3, seed=1),
    "Grad_rows": np.array([4, 0, 4, 6, 0]),
    "LearningRate": np.array([0.1], np.float32),
}
SPARSE_MOMENTS = SPARSE | POWERS | {
    "Moment1": numbers(7, 3, seed=2),
    "Moment2": numbers(7, 3, low=0.0, seed=3),
}  # fmt: skip


def window(recorded: int, updates: int) -> dict[str, np.ndarray]:
    """Return the inputs of `average_accumulates` after so many steps of this window and of all."""
    sums = {f"in_sum_{i}": numbers(3, 4, seed=i) for i in (1, 2, 3)}
    counts = {"in_num_accumulates": recorded, "in_old_num_accumulates": 5}
    counts |= {"in_num_updates": updates}
    return {"param": numbers(3, 4)} | sums | {n: np.array([c]) for n, c in counts.items()}


AVERAGED = {"average_window": 0.5, "max_average_window": 100, "min_average_window": 4}

SAMPLES = [
    Sample("sgd", BASE),
    Sample("sgd_rows", SPARSE),
    Sample("momentum", VELOCITY, {"mu": 0.9}),
    Sample("momentum", VELOCITY, {"mu": 0.9, "use_nesterov": True}),
    *(
        Sample("dgc_momentum", VELOCITY | NUMBERS, {"mu": 0.9, **each})
        for each in ({}, {"rampup_begin_step": 4.0}, {"rampup_begin_step": 4.0, **NESTEROV})
    ),
    *(
        Sample("dgc", DGC, {"sparsity": [0.9, 0.6], "rampup_step": 4.0, **each})
        for each in (
            {"rampup_begin_step": 4.0, "regular_type": 2, "regular_coeff": 0.1},
            {"regular_type": 1, "regular_coeff": 0.1},
            {"rampup_begin_step": 2.0, **NESTEROV},
        )
    ),
    *(
        Sample("dgc_clip_by_norm", STEPPED, {"max_norm": norm, "rampup_begin_step": begin})
        for norm, begin in ((0.5, 3.0), (0.5, 4.0), (50.0, 0.0))
    ),
    *(Sample("dgc_allreduce_sum", STEPPED, {"rampup_begin_step": each}) for each in (3.0, 4.0)),
    Sample("lars_momentum", VELOCITY, {"mu": 0.9}),
    Sample("lars_momentum", VELOCITY, {"mu": 0.5, "lars_coeff": 0.3, "lars_weight_decay": 0.1}),
    Sample("lars_momentum", VELOCITY | {"Grad": PARAM["Grad"] * 0}, {"mu": 0.9}),
    Sample("adagrad", SQUARES),
    Sample("adagrad", SQUARES, {"epsilon": 1e-2}),
    Sample("adagrad_rows", SPARSE | {"Moment": numbers(7, 3, low=0.1, seed=2)}),
    Sample("decayed_adagrad", SQUARES),
    Sample("decayed_adagrad", SQUARES, {"decay": 0.5, "epsilon": 1e-2}),
    Sample("proximal_adagrad", SQUARES, {"l1": 0.3, "l2": 0.5}),
    Sample("proximal_adagrad", SQUARES, {"l2": 0.5}),
    Sample("proximal_gd", BASE, {"l1": 0.3, "l2": 0.5}),
    Sample("proximal_gd", BASE, {"l2": 0.5}),
    Sample("adadelta", DISTANCES),
    Sample("adadelta", DISTANCES, {"rho": 0.5, "epsilon": 1e-2}),
    Sample("rmsprop", MEANS),
    Sample("rmsprop", MEANS, {"decay": 0.5, "momentum": 0.3, "centered": True}),
    Sample("ftrl", LEADER),
    Sample("ftrl", LEADER, {"l1": 0.3, "l2": 0.2}),
    Sample("ftrl", LEADER, {"l1": 0.1, "lr_power": -0.8}),
    Sample("adam", MOMENTS),
    Sample("adam", MOMENTS, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    Sample("adam", MOMENTS | BETAS),
    Sample("adam_rows", SPARSE_MOMENTS),
    Sample("adam_rows", SPARSE_MOMENTS | BETAS, {"epsilon": 1e-3}),
    Sample("lamb", MOMENTS, {"weight_decay": 0.1}),
    Sample("lamb", MOMENTS | {"Param": PARAM["Param"] * 0}, {"weight_decay": 0.1}),
    Sample("adamax", LARGEST),
    Sample("adamax", LARGEST, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    Sample("dpsgd", BASE, {"clip": 0.5, "batch_size": 4.0, "seed": 3}),
    Sample("dpsgd", BASE, {"clip": 50.0, "sigma": 3.0, "seed": 4}),
    Sample("average_accumulates", window(2, 3), AVERAGED),
    Sample("average_accumulates", window(3, 6), AVERAGED),
    Sample("average_accumulates", window(3, 16383), AVERAGED),
]
