"""Samples of random numbers, all with a seed: then they are numbers like any other."""

from tests.ops.samples import Sample, numbers

X = numbers(5, 7)
SEEDED = {"fix_seed": True, "seed": 11, "dropout_prob": 0.3}
UPSCALED = {"dropout_implementation": "upscale_in_train"}
DIAGONAL = {"diag_num": 3, "diag_step": 4, "diag_val": 7.0}

SAMPLES = [
    Sample("uniform_random", {}, {"shape": [3, 4], "min": -2.0, "max": 3.0, "seed": 3}),
    Sample("uniform_random", {}, {"shape": [3, 4], "seed": 3, "dtype": 6}),
    Sample("uniform_random", {}, {"shape": [3, 4], "seed": 3, **DIAGONAL}),
    Sample("gaussian_random", {}, {"shape": [3, 5], "mean": 1.0, "std": 2.0, "seed": 3}),
    Sample("gaussian_random", {}, {"shape": [2], "seed": 3, "dtype": 6}),
    Sample("truncated_gaussian_random", {}, {"shape": [3, 5], "std": 2.0, "seed": 3}),
    Sample("dropout", {"X": X}, SEEDED, ("X",)),
    Sample("dropout", {"X": X}, SEEDED | UPSCALED, ("X",)),
    Sample("dropout", {"X": X}, SEEDED | UPSCALED | {"dropout_prob": 1.0}, ("X",)),
    Sample("dropout", {"X": X}, {"is_test": True, "dropout_prob": 0.3}, ("X",)),
    Sample("dropout", {"X": X}, UPSCALED | {"is_test": True, "dropout_prob": 0.3}, ("X",)),
]
