"""Samples of metrics: the first batch and a later one, all rows and some, with weights."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

GUESSES = np.array([[0, 1], [1, 2], [3, 0], [2, 3], [1, 0]])
LABELS = np.array([[1], [0], [3], [2], [1]])

SAMPLES = [
    Sample("accuracy", {"Out": numbers(5, 2), "Indices": GUESSES, "Label": LABELS}),
    Sample("accuracy", {"Out": numbers(5, 1), "Indices": GUESSES[:, :1].copy(), "Label": LABELS}),
]

BINS = 8
CHANCE = numbers(12, 1, low=0.0, high=1.0)
SCORED = {
    "Predict": np.concatenate([1 - CHANCE, CHANCE], axis=1),
    "Label": integers(12, 1, high=2, seed=1),
}
SOFAR = {"StatPos": integers(1, BINS, high=5, seed=2), "StatNeg": integers(1, BINS, high=5, seed=3)}


def slid(steps, batches, seed):
    """Return the counts of the last batches and of all of them, and how many there were."""
    lines = integers(steps, BINS, high=5, seed=seed)
    return np.concatenate([lines.ravel(), lines.sum(0), [batches]])


LATEST = {"StatPos": slid(3, 4, 4), "StatNeg": slid(3, 4, 5)}
FRESH = {slot: np.zeros(2 * BINS + 1, np.int64) for slot in ("StatPos", "StatNeg")}
SAMPLES += [
    Sample("auc", {**SCORED, **counts}, {"num_thresholds": BINS - 1, "slide_steps": steps})
    for counts, steps in ((SOFAR, 0), (FRESH, 1), (LATEST, 3))
]

CLASSES = integers(3, 4, high=5, seed=6).astype(np.int32)
TRUE = integers(3, 4, high=5, seed=7).astype(np.int32)
BEFORE = {
    "InWrongs": [integers(6, high=9, seed=8).astype(np.int32), np.ones(6, np.int32)],
    "InCorrects": [integers(6, high=9, seed=9).astype(np.int32)],
    "InMeanIou": [np.array([0.25], np.float32)],
}
SAMPLES += [
    Sample("mean_iou", {"Predictions": CLASSES, "Labels": TRUE, **before}, {"num_classes": 6})
    for before in ({}, BEFORE)
]

GUESSED = {"MaxProbs": CHANCE, "Indices": CLASSES.reshape(12, 1), "Labels": TRUE.reshape(12, 1)}
WEIGHTS = {"Weights": numbers(12, 1, low=0.1, high=2.0)}
STATES = {"StatesInfo": integers(5, 4, high=9).astype(np.float32)}
SAMPLES += [
    Sample("precision_recall", {**GUESSED, **more}, {"class_number": 5})
    for more in ({}, WEIGHTS, WEIGHTS | STATES)
]

ANSWERS = {
    "Score": numbers(9, 2),
    "Label": integers(9, 1, high=3, seed=10).astype(np.float32),
    "QueryID": integers(9, 1, high=3, seed=11),
}
ONE = np.array([2.5], np.float32)
EARLIER = {f"Accumulate{kind}Pair": ONE for kind in ("Positive", "Negative", "Neutral")}
SAMPLES += [
    Sample("positive_negative_pair", {**ANSWERS, **more}, {"column": column})
    for more, column in (({}, 0), ({"Weight": numbers(9, 1, low=0.1, high=2.0), **EARLIER}, -1))
]

BOXES = numbers(7, 4, low=0.0, high=0.4, seed=12) + np.array([0, 0, 0.5, 0.5], np.float32)
KINDS = integers(7, 1, high=3, seed=13).astype(np.float32)
SEEN = {
    "DetectRes": np.concatenate([KINDS, numbers(7, 1, low=0.0, high=1.0), BOXES], axis=1),
    "DetectRes_lod": [np.array([0, 4, 4, 7])],
}
NEARLY = BOXES[::2] + np.float32(0.03)
THERE = {
    "Label": np.concatenate([KINDS[::2], NEARLY], axis=1),
    "Label_lod": [np.array([0, 2, 2, 4])],
}
EASY_OR_NOT = np.array([[0], [1], [0], [0]], np.float32)
RATED = {**THERE, "Label": np.concatenate([KINDS[::2], EASY_OR_NOT, NEARLY], axis=1)}
RIGHT = np.array([[0.9, 1], [0.7, 0], [0.8, 1]], np.float32)
KEPT = {
    "HasState": np.array([1], np.int32),
    "PosCount": np.array([[2], [0], [1]], np.int32),
    "TruePos": RIGHT,
    "TruePos_lod": [np.array([0, 2, 2, 3])],
    "FalsePos": np.stack([RIGHT[:, 0], 1 - RIGHT[:, 1]], axis=1),
}
SAMPLES += [
    Sample("detection_map", {**SEEN, **THERE}, {"class_num": 3}),
    Sample("detection_map", {**SEEN, **THERE, **KEPT}, {"class_num": 3, "ap_type": "11point"}),
    Sample("detection_map", {**SEEN, **RATED}, {"class_num": 3, "evaluate_difficult": False}),
]
