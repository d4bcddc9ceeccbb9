"""Samples of losses of two tensors: away from kinks, with weights, and all ways to reduce."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

X, Y = numbers(5, 3, low=-2.0, high=2.0), numbers(5, 3, low=-1.5, high=1.6, seed=1)
SURE = numbers(5, 3, low=0.05, high=0.95, seed=2)
TRUTH = np.where(numbers(5, 3, seed=3) > 0, 1.0, 0.0).astype(np.float32)
SIDES = 2 * TRUTH - 1
SOME = np.where(numbers(5, 3, seed=4) > 0.4, -100.0, SURE).astype(np.float32)
PRIOR = numbers(1, 3, low=0.1, high=0.6, seed=5)
TARGET = np.where(numbers(5, 3, seed=6) > 0.5, -0.3, SURE).astype(np.float32)
TAUGHT = numbers(8, 1, low=-3.0, high=2.0, seed=7)
SCORES = numbers(8, 1, low=-3.0, high=3.0, seed=8)
CLASSES = integers(5, 1, high=4, seed=9)
CENTERS = {"Centers": numbers(4, 3, seed=10), "CenterUpdateRate": np.array([0.3], np.float32)}
WEIGHTS = {"InsideWeight": numbers(5, 3, seed=11), "OutsideWeight": numbers(5, 3, seed=12)}
DEEP = {"X": numbers(2, 3, 4, seed=13), "Y": numbers(2, 3, 4, low=-1.7, high=2.0, seed=14)}

SAMPLES = [
    Sample("hinge_loss", {"Logits": X, "Labels": TRUTH}, {}, ("Logits",)),
    Sample("log_loss", {"Predicted": SURE, "Labels": TRUTH}, {"epsilon": 1e-3}, ("Predicted",)),
    Sample("bce_loss", {"X": SURE, "Label": PRIOR.repeat(5, 0)}, {}, ("X",)),
    Sample("modified_huber_loss", {"X": X, "Y": TRUTH}, {}, ("X",)),
    Sample("huber_loss", {"X": X, "Y": Y}, {"delta": 0.7}, ("X", "Y")),
    Sample("smooth_l1_loss", {"X": X, "Y": Y}, {"sigma": 1.3}, ("X", "Y")),
    Sample("smooth_l1_loss", {"X": X, "Y": Y, **WEIGHTS}, {}, ("X", "Y")),
    Sample("smooth_l1_loss", DEEP, {"sigma": 0.8}, ("X", "Y")),
    Sample("rank_loss", {"Label": SURE, "Left": X, "Right": Y}, {}, ("Left", "Right")),
    Sample(
        "rank_loss",
        {"Label": SURE[:, 0], "Left": X[:, :1], "Right": Y[:, 0]},
        {},
        ("Left", "Right"),
    ),
    Sample("margin_rank_loss", {"X1": X, "X2": Y, "Label": SIDES}, {"margin": 0.3}, ("X1", "X2")),
    Sample("bpr_loss", {"X": numbers(5, 4), "Label": CLASSES}, {}, ("X",)),
    Sample("bpr_loss", {"X": numbers(5, 2, 4), "Label": integers(5, 2, 1, high=4)}, {}, ("X",)),
    Sample("label_smooth", {"X": SURE}, {"epsilon": 0.1}, ("X",)),
    Sample("label_smooth", {"X": SURE, "PriorDist": PRIOR}, {"epsilon": 0.2}, ("X",)),
    Sample("center_loss", {"X": X, "Label": CLASSES, **CENTERS}, {"cluster_num": 4, "need_update": False}, ("X",)),
    Sample("center_loss", {"X": X, "Label": CLASSES[:, 0], **CENTERS}, {"cluster_num": 4, "need_update": True}),
    Sample("teacher_student_sigmoid_loss", {"X": SCORES, "Label": TAUGHT}, {}, ("X",)),
]  # fmt: skip
SAMPLES += [
    Sample("sigmoid_cross_entropy_with_logits", {"X": X, "Label": SOME}, attrs, ("X",))
    for attrs in ({}, {"normalize": True}, {"normalize": True, "ignore_index": 0})
]
SAMPLES += [
    Sample("kldiv_loss", {"X": X, "Target": TARGET}, {"reduction": reduction}, ("X",))
    for reduction in ("none", "mean", "sum", "batchmean")
]

LABELS = np.array([[2], [0], [3], [1], [0]])
SHARES = np.exp(numbers(5, 4, low=-2.0, high=2.0))
SHARES /= SHARES.sum(1, keepdims=True)
STACK = numbers(2, 3, 4, low=0.1, high=0.9)
IN_STACK = np.array([[[0], [1], [2]], [[3], [2], [1]]])
SAMPLES += [
    Sample("cross_entropy", {"X": SHARES, "Label": LABELS}, {}, ("X",)),
    Sample("cross_entropy", {"X": SHARES, "Label": LABELS[:, 0]}, {"ignore_index": 0}, ("X",)),
    Sample("cross_entropy", {"X": STACK, "Label": IN_STACK}, {}, ("X",)),
    Sample("cross_entropy", {"X": SHARES, "Label": SHARES[::-1].copy()}, {"soft_label": True}, ("X",)),
]  # fmt: skip

LOGS = np.log(SHARES)
PICTURES = numbers(2, 4, 3, 2, low=-3.0, high=-0.1)
IN_PICTURES = integers(2, 3, 2, high=4)
WEIGHT = {"Weight": numbers(4, low=0.2, high=1.4)}
SAMPLES += [
    Sample("nll_loss", {**inputs, **weight}, {"reduction": reduction, "ignore_index": 3}, ("X",))
    for inputs in ({"X": LOGS, "Label": LABELS[:, 0]}, {"X": PICTURES, "Label": IN_PICTURES})
    for weight in ({}, WEIGHT)
    for reduction in ("none", "mean", "sum")
]
