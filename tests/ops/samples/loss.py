"""Samples of cross entropies: labels in both shapes, labels to ignore, soft labels."""

import numpy as np

from tests.ops.samples import Sample, numbers

LOGITS = numbers(5, 4, low=-2.0, high=2.0)
POWERS = np.exp(LOGITS)
SHARES = POWERS / POWERS.sum(axis=1, keepdims=True)
LABELS = np.array([[2], [0], [3], [1], [0]])
STACK = numbers(2, 3, 4, low=0.1, high=0.9)
IN_STACK = np.array([[[0], [1], [2]], [[3], [2], [1]]])

SAMPLES = [
    Sample("cross_entropy2", {"X": SHARES, "Label": LABELS}, {}, ("X",)),
    Sample("cross_entropy2", {"X": SHARES, "Label": LABELS[:, 0]}, {}, ("X",)),
    Sample("cross_entropy2", {"X": STACK, "Label": IN_STACK}, {}, ("X",)),
    Sample("cross_entropy2", {"X": SHARES, "Label": LABELS}, {"ignore_index": 0}, ("X",)),
    Sample("cross_entropy2", {"X": SHARES, "Label": LABELS - 1}, {"ignore_index": -1}, ("X",)),
]
SOFT = {"soft_label": True}
SAMPLES += [
    Sample("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, attrs, ("Logits",))
    for logits, label, attrs in [
        (LOGITS, LABELS, {}),
        (LOGITS, LABELS - 1, {"ignore_index": -1}),
        (LOGITS, np.where(LABELS == 0, 255, LABELS), {"ignore_index": 255}),
        (STACK, IN_STACK, {}),
        (STACK.transpose(0, 2, 1).copy(), IN_STACK.transpose(0, 2, 1).copy(), {"axis": 1}),
        (LOGITS, SHARES[::-1].copy(), SOFT),
        (LOGITS.T.copy(), SHARES[::-1].T.copy(), SOFT | {"axis": 0}),
    ]
]
