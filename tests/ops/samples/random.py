"""Samples of random numbers, all with a seed: then they are numbers like any other."""

import numpy as np

from tests.ops.samples import Sample, numbers

X = numbers(5, 7)
SEEDED = {"fix_seed": True, "seed": 11, "dropout_prob": 0.3}
UPSCALED = {"dropout_implementation": "upscale_in_train"}
DIAGONAL = {"diag_num": 3, "diag_step": 4, "diag_val": 7.0}
SINGLE = [np.array([3]), np.array([4])]
SEED = np.array([17])
KEY = {"Key": np.array([9, -5, 2**62, 31])}
TESTED = {"is_test": True, "dropout_prob": 0.3}
LIKE = {"shape": [-1, 3], "seed": 3, "input_dim_idx": 1}

SAMPLES = [
    Sample("uniform_random", {}, {"shape": [3, 4], "min": -2.0, "max": 3.0, "seed": 3}),
    Sample("uniform_random", {}, {"shape": [3, 4], "seed": 3, "dtype": 6}),
    Sample("uniform_random", {}, {"shape": [3, 4], "seed": 3, **DIAGONAL}),
    Sample("uniform_random", {"ShapeTensorList": SINGLE}, {"seed": 3}),
    Sample("gaussian_random", {}, {"shape": [3, 5], "mean": 1.0, "std": 2.0, "seed": 3}),
    Sample("gaussian_random", {}, {"shape": [2], "seed": 3, "dtype": 6}),
    Sample("gaussian_random", {"ShapeTensorList": SINGLE}, {"shape": [-1, 4], "seed": 3}),
    Sample("truncated_gaussian_random", {}, {"shape": [3, 5], "std": 2.0, "seed": 3}),
    Sample("randint", {}, {"shape": [3, 4], "low": -2, "high": 9, "seed": 3}),
    Sample("randint", {"ShapeTensorList": SINGLE}, {"low": 0, "high": 9, "seed": 3, "dtype": 2}),
    Sample("randperm", {}, {"n": 7, "seed": 3}),
    Sample("uniform_random_batch_size_like", {"Input": X}, {**LIKE, "max": 3.0}),
    Sample("gaussian_random_batch_size_like", {"Input": X}, {**LIKE, "std": 2.0}),
    Sample("bernoulli", {"X": (X > 0).astype(np.float32)}),
    Sample("sampling_id", {"X": np.abs(X)}, {"seed": 3}),
    Sample("seed", {}, {"seed": 3}),
    Sample("random_crop", {"X": numbers(2, 5, 6), "Seed": SEED}, {"shape": [3, 2]}),
    Sample("shuffle_batch", {"X": X, "Seed": SEED}, {}, ("X",)),
    Sample("dropout", {"X": X}, SEEDED, ("X",)),
    Sample("dropout", {"X": X}, SEEDED | {"seed": 0}, ("X",)),
    Sample("dropout", {"X": X, "Seed": SEED}, {"dropout_prob": 0.3}, ("X",)),
    Sample("dropout", {"X": X}, SEEDED | UPSCALED, ("X",)),
    Sample("dropout", {"X": X}, SEEDED | UPSCALED | {"dropout_prob": 1.0}, ("X",)),
    Sample("dropout", {"X": X}, {"is_test": True, "dropout_prob": 0.3}, ("X",)),
    Sample("dropout", {"X": X}, UPSCALED | {"is_test": True, "dropout_prob": 0.3}, ("X",)),
    Sample("random_keys", {}, {"seeds": [5, 0, 2**32 - 1]}),
    Sample("uniform_random", KEY, {"shape": [3, 41], "min": -2.0, "max": 3.0, "place": 1}),
    Sample("uniform_random", KEY, {"shape": [3, 5], "dtype": 6, "place": 2}),
    Sample("uniform_random", KEY, {"shape": [3, 4], **DIAGONAL}),
    Sample("gaussian_random", KEY, {"shape": [7, 3], "mean": 1.0, "std": 2.0, "place": 3}),
    Sample("gaussian_random", KEY, {"shape": [7], "dtype": 6}),
    Sample("truncated_gaussian_random", KEY, {"shape": [7, 3], "mean": 1.0, "std": 2.0}),
    Sample("truncated_gaussian_random", KEY, {"shape": [7], "dtype": 6, "place": 2}),
    Sample("randint", KEY, {"shape": [3, 7], "low": -2, "high": 9, "place": 1}),
    Sample("randint", KEY, {"shape": [7], "low": -(2**62), "high": 2**62}),
    Sample("randint", KEY, {"shape": [7], "low": -9, "high": 2**30, "dtype": 2}),
    Sample("randperm", KEY, {"n": 37, "place": 3}),
    Sample("uniform_random_batch_size_like", {"Input": X, **KEY}, {**LIKE, "max": 3.0}),
    Sample("gaussian_random_batch_size_like", {"Input": X, **KEY}, {**LIKE, "std": 2.0}),
    Sample("bernoulli", {"X": np.abs(X), **KEY}, {"place": 1}),
    Sample("sampling_id", {"X": np.abs(X) / 5, **KEY}, {"place": 2, "min": 0.1, "max": 0.6}),
    Sample("seed", KEY, {"place": 1}),
    Sample("shuffle_batch", {"X": numbers(3, 5, 4), "Seed": SEED}, {}, ("X",)),
    Sample("dropout_by_key", {"X": X, **KEY}, {"dropout_prob": 0.3, "place": 1}),
    Sample("dropout_by_key", {"X": X, **KEY}, UPSCALED | {"dropout_prob": 0.3, "place": 3}),
    Sample("dropout_by_key", {"X": X, "Key": np.array([7], np.int32)}, {"dropout_prob": 0.3}),
    Sample("dropout_by_key", {"X": X, **KEY}, TESTED),
]
