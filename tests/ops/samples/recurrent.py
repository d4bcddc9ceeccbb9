"""Samples of recurrent ops: gates, peepholes, both directions, initial states, activations."""

from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import lod

WIDTH, SIZE = 3, 2


def memory(lengths, initial=False, width=WIDTH, **attrs):
    """Return a sample of lstm."""
    peepholes = attrs.get("use_peepholes", True)
    inputs = {
        "Input": numbers(sum(lengths), 4 * width),
        "Input_lod": lod(lengths),
        "Weight": numbers(width, 4 * width, seed=1),
        "Bias": numbers(1, (7 if peepholes else 4) * width, seed=2),
    }
    states = ("H0", "C0") if initial else ()
    inputs |= {slot: numbers(len(lengths), width, seed=3) for slot in states}
    return Sample("lstm", inputs, attrs, ("Input", "Weight", "Bias", *states))


def projected(lengths, initial=False, **attrs):
    """Return a sample of lstmp."""
    arguments = memory(lengths, initial, **attrs)
    inputs = {
        **arguments.inputs,
        "Weight": numbers(SIZE, 4 * WIDTH, seed=1),
        "ProjWeight": numbers(WIDTH, SIZE, seed=5),
    }
    if initial:
        inputs["H0"] = numbers(len(lengths), SIZE, seed=3)
    return Sample("lstmp", inputs, attrs, (*arguments.grads, "ProjWeight"))


def gated(lengths, initial=False, bias=True, width=WIDTH, **attrs):
    """Return a sample of gru."""
    inputs = {
        "Input": numbers(sum(lengths), 3 * width),
        "Input_lod": lod(lengths),
        "Weight": numbers(width, 3 * width, seed=1),
    }
    if bias:
        inputs["Bias"] = numbers(1, 3 * width, seed=2)
    if initial:
        inputs["H0"] = numbers(len(lengths), width, seed=3)
    return Sample("gru", inputs, attrs, tuple(slot for slot in inputs if slot != "Input_lod"))


def gated_step(bias=True, **attrs):
    """Return a sample of gru_unit."""
    inputs = {
        "Input": numbers(2, 3 * WIDTH),
        "HiddenPrev": numbers(2, WIDTH, seed=1),
        "Weight": numbers(WIDTH, 3 * WIDTH, seed=2),
    }
    if bias:
        inputs["Bias"] = numbers(1, 3 * WIDTH, seed=3)
    return Sample("gru_unit", inputs, attrs, tuple(inputs))


def layers(count, directions, **attrs):
    """Return a sample of cudnn_lstm over [length, batch, size] = [4, 2, 3]."""
    hidden, below = 2, [3] + [2 * directions] * (count - 1)
    weights = sum(directions * 4 * hidden * (size + hidden + 2) for size in below)
    states = (count * directions, 2, hidden)
    inputs = {
        "Input": numbers(4, 2, 3),
        "InitH": numbers(*states, seed=1),
        "InitC": numbers(*states, seed=2),
        "W": numbers(weights, seed=3),
    }
    known = {"hidden_size": hidden, "num_layers": count, "is_bidirec": directions == 2}
    return Sample("cudnn_lstm", inputs, {**known, **attrs}, ("Input", "InitH", "InitC", "W"))


LENGTHS = (3, 1, 4)

SAMPLES = [
    memory(LENGTHS),
    memory(LENGTHS, initial=True, is_reverse=True),
    memory((2, 0, 3), initial=True, use_peepholes=False),
    memory((2,), use_peepholes=False, gate_activation="identity"),
    memory((2, 2), cell_activation="sigmoid", candidate_activation="relu"),
    projected(LENGTHS),
    projected(LENGTHS, initial=True, is_reverse=True, use_peepholes=False),
    projected((2, 0, 3), initial=True, proj_activation="identity"),
    projected((3, 2), cell_clip=0.1, proj_clip=0.2, cell_activation="identity"),
    gated(LENGTHS),
    gated(LENGTHS, initial=True, is_reverse=True, origin_mode=True),
    gated((2, 0, 3), initial=True, bias=False, activation="identity"),
    gated((2, 1), activation="sigmoid", gate_activation="identity"),
    gated_step(),
    gated_step(bias=False, origin_mode=True, activation=0, gate_activation=2),
    Sample(
        "lstm_unit", {"X": numbers(2, 12), "C_prev": numbers(2, 3, seed=1)}, {}, ("X", "C_prev")
    ),
    Sample(
        "lstm_unit",
        {"X": numbers(1, 8), "C_prev": numbers(1, 2, seed=1)},
        {"forget_bias": 1.0},
        ("X", "C_prev"),
    ),
    layers(1, 1),
    layers(2, 1),
    layers(3, 2),
    layers(2, 2, dropout_prob=0.5, seed=7),
    layers(2, 1, dropout_prob=0.5, is_test=True),
]
