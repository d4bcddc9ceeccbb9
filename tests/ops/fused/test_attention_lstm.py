"""`attention_lstm`: all sequences of a step are computed at once, like each alone."""

import numpy as np

from compiler.ir.opdef import find
from compiler.ops.fused import attention_lstm
from tests.ops.samples import numbers
from tests.ops.samples.sequence import lod

WIDTH, FEATURES = 2, 3
WEIGHTS = {
    "AttentionWeight": numbers(FEATURES + WIDTH, 1, seed=2),
    "LSTMWeight": numbers(FEATURES + WIDTH, 4 * WIDTH, seed=3),
    "LSTMBias": numbers(1, 4 * WIDTH, seed=4),
}


def outputs(rows, cells, lengths):
    """Return Hidden and Cell of sequences of these lengths."""
    inputs = {"X": rows, "X_lod": lod(lengths), "C0": cells, **WEIGHTS}
    result = find("attention_lstm_steps")({}).evaluate(inputs)
    return np.stack([result["Hidden"], result["Cell"]])


def test_sequences_together_are_computed_like_each_alone():
    """Short and long ones in any order, also empty ones."""
    lengths = [2, 0, 70, 1, 64, 0, 63, 2]
    rows, cells = numbers(sum(lengths), FEATURES), numbers(len(lengths), WIDTH, seed=1)
    parts = zip(np.split(rows, np.cumsum(lengths)[:-1]), cells, lengths, strict=True)
    alone = [outputs(part, cell[None], [length]) for part, cell, length in parts]
    np.testing.assert_allclose(
        outputs(rows, cells, lengths), np.concatenate(alone, 1), rtol=1e-4, atol=1e-6
    )


def test_the_number_of_steps_is_that_of_the_longest_sequence(monkeypatch):
    calls = []
    activate = attention_lstm.activate
    monkeypatch.setattr(attention_lstm, "activate", lambda *args: calls.append(activate(*args)))
    outputs(numbers(60, FEATURES), numbers(30, WIDTH), [1, 3, 2] * 10)
    assert len(calls) == 3 * 3
