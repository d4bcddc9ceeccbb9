"""Samples of losses that draw some classes or split them: by hand, so that numbers stay."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

ROWS, CLASSES = 4, 11
NEGATIVE = {"num_total_classes": CLASSES, "num_neg_samples": 3, "custom_neg_classes": [1, 5, 1]}
DRAWN = {"num_total_classes": CLASSES, "num_neg_samples": 3, "seed": 7}
CLASSIFIED = {
    "Input": numbers(ROWS, 3),
    "Label": integers(ROWS, 2, high=CLASSES),
    "Weight": numbers(CLASSES, 3, seed=1),
}
BIAS = {"Bias": numbers(CLASSES, 1, seed=2)}
IMPORTANT = {"SampleWeight": numbers(ROWS, 1, low=0.2, high=1.5, seed=3)}
CHANCES = np.arange(1.0, CLASSES + 1, dtype=np.float32) / 66
CUSTOM = {
    "CustomDistProbs": CHANCES,
    "CustomDistAlias": np.arange(CLASSES, dtype=np.int32)[::-1].copy(),
    "CustomDistAliasProbs": np.linspace(0.3, 1.0, CLASSES, dtype=np.float32),
}
ALL = ("Input", "Weight", "Bias")
KEY = {"Key": np.array([9, -5, 2**62, 31])}

SAMPLES = [
    Sample("nce", CLASSIFIED, NEGATIVE, ("Input", "Weight")),
    Sample("nce", {**CLASSIFIED, **BIAS, **IMPORTANT}, NEGATIVE | {"sampler": 1}, ALL),
    Sample("nce", {**CLASSIFIED, **BIAS, **CUSTOM}, NEGATIVE | {"sampler": 2}, ALL),
    Sample("nce", CLASSIFIED, DRAWN),
    Sample("nce", CLASSIFIED, DRAWN | {"sampler": 1}),
    Sample("nce", {**CLASSIFIED, **CUSTOM}, DRAWN | {"sampler": 2}, ("Input", "Weight")),
    Sample("nce", {**CLASSIFIED, **KEY}, DRAWN),
    Sample("nce", {**CLASSIFIED, **KEY, **BIAS}, DRAWN | {"sampler": 1, "place": 2}),
    Sample("nce", {**CLASSIFIED, **KEY, **CUSTOM}, DRAWN | {"sampler": 2}),
    Sample("nce", {**CLASSIFIED, **KEY, **IMPORTANT}, NEGATIVE),
]


def in_tree(classes, *given):
    """Return inputs of the complete binary tree of so many classes."""
    inputs = {"X": numbers(5, 3, seed=4), "Label": integers(5, 1, high=classes, seed=5)}
    forks = {"W": numbers(classes - 1, 3, seed=6), "Bias": numbers(classes - 1, 1, seed=7)}
    return inputs | {slot: forks[slot] for slot in given}


OWN_PATHS = {
    "X": numbers(3, 2, seed=8),
    "W": numbers(6, 2, seed=9),
    "Bias": numbers(1, 6, seed=10),
    "Label": np.array([[0], [2], [1]]),
    "PathTable": np.array([[0, 2, -1], [0, 1, 4], [5, -1, -1]]),
    "PathCode": np.array([[0, 1, -1], [1, 0, 1], [1, -1, -1]]),
}
SAMPLES += [
    Sample("hierarchical_sigmoid", in_tree(6, "W"), {"num_classes": 6}, ("X", "W")),
    Sample("hierarchical_sigmoid", in_tree(9, "W", "Bias"), {"num_classes": 9}, ("X", "W", "Bias")),
    Sample("hierarchical_sigmoid", OWN_PATHS, {"num_classes": 6}, ("X", "W", "Bias")),
]

LOGITS = {"Logits": numbers(ROWS, 9, low=-2.0, high=2.0), "Labels": integers(ROWS, 2, high=9)}
DRAWN_CLASSES = np.concatenate([LOGITS["Labels"], integers(ROWS, 3, high=9, seed=11)], axis=1)
BY_HAND = {
    "CustomizedSamples": DRAWN_CLASSES,
    "CustomizedProbabilities": numbers(ROWS, 5, low=0.1, high=0.9, seed=12),
}
SAMPLES += [
    Sample(
        "sample_logits",
        {**LOGITS, **BY_HAND},
        {"num_samples": 3, "use_customized_samples": True, "remove_accidental_hits": False},
        ("Logits",),
    ),
    Sample("sample_logits", LOGITS, {"num_samples": 4, "seed": 5, "remove_accidental_hits": False}),
    Sample("sample_logits", LOGITS, {"num_samples": 9, "seed": 5}),
]
