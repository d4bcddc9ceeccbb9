"""Recurrent ops compared with each other: over sequences and step by step, and their errors."""

import re
from itertools import pairwise

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ops.sequence.time_steps import activate
from tests.ops.backward import gradients, types_of
from tests.ops.samples import numbers
from tests.ops.samples.recurrent import gated, layers, memory, projected
from tests.ops.samples.sequence import lod

WIDTH = 3


def run(kind, inputs, **attrs):
    """Return what an op makes of arrays, once its types are found to go together."""
    op = find(kind)(attrs)
    op.infer_types(types_of(inputs))
    return op.evaluate(inputs)


def test_gru_is_its_unit_step_by_step():
    sample = gated((4,), initial=True)
    state, steps = sample.inputs["H0"], []
    weights = {slot: sample.inputs[slot] for slot in ("Weight", "Bias")}
    for row in sample.inputs["Input"]:
        state = run("gru_unit", {"Input": row[None], "HiddenPrev": state, **weights})["Hidden"]
        steps.append(state[0])
    np.testing.assert_allclose(run("gru", sample.inputs)["Hidden"], steps, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("kind", ["sigmoid", "logistic", "tanh", "relu"])
def test_columns_of_gates_are_activated_in_place(width, kind):
    """Also those that are 16 bytes apart, which `np.negative` of NumPy 2.4 misses."""
    for dtype in (np.float32, np.float64):
        gates = numbers(9, 8 * width).astype(dtype)
        for column in range(8):
            part = gates[:, column * width : (column + 1) * width]
            want = part.copy()
            activate(want, kind)
            activate(part, kind)
            np.testing.assert_array_equal(part, want)


def test_lstm_is_its_unit_step_by_step():
    """The unit has its gates in another order: input, forget, output, candidate."""
    sample = memory((4,), initial=True, use_peepholes=False)
    state, cell, steps = sample.inputs["H0"], sample.inputs["C0"], []
    order = np.r_[WIDTH : 4 * WIDTH, :WIDTH]
    for row in sample.inputs["Input"]:
        gates = row + state @ sample.inputs["Weight"] + sample.inputs["Bias"]
        created = run("lstm_unit", {"X": gates[:, order], "C_prev": cell})
        state, cell = created["H"], created["C"]
        steps.append(state[0])
    result = run("lstm", sample.inputs, **sample.attrs)
    np.testing.assert_allclose(result["Hidden"], steps, rtol=1e-5)
    np.testing.assert_allclose(result["Cell"][-1], cell[0], rtol=1e-5)


def test_lstm_is_the_one_of_cudnn():
    """Whose gates stand as input, forget, candidate, output, with two biases."""
    sample = layers(1, 1)
    x, weights = sample.inputs["Input"], sample.inputs["W"]
    hidden, order = 2, [2, 0, 1, 3]
    outer = weights[:24].reshape(4, hidden, 3)[order].reshape(-1, 3)
    inner = weights[24:40].reshape(4, hidden, hidden)[order].reshape(-1, hidden)
    bias = weights[40:].reshape(2, 4, hidden).sum(0)[order].reshape(1, -1)
    inputs = {
        "Input": (x @ outer.T).transpose(1, 0, 2).reshape(8, -1),
        "Input_lod": lod((4, 4)),
        "Weight": inner.T,
        "Bias": bias,
        "H0": sample.inputs["InitH"][0],
        "C0": sample.inputs["InitC"][0],
    }
    actual = run("lstm", inputs, use_peepholes=False)["Hidden"].reshape(2, 4, hidden)
    wanted = run("cudnn_lstm", sample.inputs, **sample.attrs)["Out"]
    np.testing.assert_allclose(actual.transpose(1, 0, 2), wanted, rtol=1e-5)


def test_projection_by_a_unit_matrix_changes_nothing():
    sample = memory((3, 1, 2))
    inputs = {**sample.inputs, "ProjWeight": np.eye(WIDTH, dtype=np.float32)}
    result = run("lstmp", inputs, proj_activation="identity")["Projection"]
    np.testing.assert_allclose(result, run("lstm", sample.inputs)["Hidden"], rtol=1e-6)


@pytest.mark.parametrize(
    "sample",
    [memory((3, 0, 1, 4), initial=True), gated((3, 0, 1, 4), initial=True)],
    ids=lambda sample: sample.op,
)
def test_sequences_are_computed_by_themselves(sample):
    """A batch equals its sequences computed alone, whatever the order of time steps."""
    offsets = sample.inputs["Input_lod"][0]
    whole = run(sample.op, sample.inputs, **sample.attrs)["Hidden"]
    for index, (begin, end) in enumerate(pairwise(offsets)):
        alone = {**sample.inputs, "Input": sample.inputs["Input"][begin:end]}
        alone["Input_lod"] = lod((end - begin,))
        for slot in ("H0", "C0"):
            if slot in alone:
                alone[slot] = alone[slot][index : index + 1]
        result = run(sample.op, alone, **sample.attrs)["Hidden"]
        np.testing.assert_allclose(result, whole[begin:end], rtol=1e-5)


def test_reverse_is_the_forward_of_reversed_rows():
    sample = gated((4,))
    backwards = {**sample.inputs, "Input": sample.inputs["Input"][::-1]}
    result = run("gru", sample.inputs, is_reverse=True)["Hidden"]
    np.testing.assert_allclose(result[::-1], run("gru", backwards)["Hidden"], rtol=1e-6)


def test_projection_is_activated_like_the_cell():
    """As in the reference, for any `proj_activation` but "identity"."""
    sample = projected((3, 1))
    created = [run("lstmp", sample.inputs, proj_activation=kind) for kind in ("relu", "tanh")]
    np.testing.assert_array_equal(created[0]["Projection"], created[1]["Projection"])


def test_missing_cell_gradient_is_zero():
    assert "Cell@GRAD" not in find("lstm").grad_class.inputs()
    assert "Cell@GRAD" not in find("lstmp").grad_class.inputs()


def test_lstm_dropout_repeats_by_seed():
    sample = layers(2, 1, dropout_prob=0.5, seed=3)
    first, again = (run("cudnn_lstm", sample.inputs, **sample.attrs) for _ in range(2))
    other = run("cudnn_lstm", sample.inputs, **{**sample.attrs, "seed": 4})
    np.testing.assert_array_equal(first["DropoutMask"], again["DropoutMask"])
    assert (first["DropoutMask"] != other["DropoutMask"]).any()
    loose = [
        run("cudnn_lstm", sample.inputs, **{**sample.attrs, "seed": -1})["DropoutMask"]
        for _ in range(8)
    ]
    assert any((loose[0] != each).any() for each in loose)


def test_gates_far_out_are_finite():
    sample = gated((2,))
    inputs = {**sample.inputs, "Input": sample.inputs["Input"] * 1e4}
    with np.errstate(all="raise", under="ignore"):
        created = run("gru", inputs)["Hidden"]
        result = gradients("gru", {}, inputs, {"Hidden": numbers(2, WIDTH)})["Input"]
    assert np.isfinite(created).all()
    assert np.isfinite(result).all()


BAD_SHAPES = [
    (memory((2,)), {"Bias": numbers(1, 12)}, "lstm: Bias is f32[1, 12], expected [1, 21]"),
    (memory((2,)), {"Weight": numbers(4, 12)}, "lstm: Weight is f32[4, 12], expected [3, 12]"),
    (memory((2,)), {"H0": numbers(1, 3)}, "H0 is f32[1, 3], but C0 is missing"),
    (memory((2,)), {"C0": numbers(2, 3)}, "lstm: C0 is f32[2, 3], expected [1, 3]"),
    (memory((2,)), {"Input": numbers(2, 13)}, "Input is f32[2, 13], expected [rows, 4 · width]"),
    (projected((2,)), {"ProjWeight": numbers(2, 2)}, "ProjWeight is f32[2, 2], expected [3, 2]"),
    (gated((2,)), {"Weight": numbers(3, 8)}, "gru: Weight is f32[3, 8], expected [3, 9]"),
    (gated((2,)), {"Input_lod": lod((1,), (2,))}, "gru: Input has 2 LoD levels, expected 1"),
    (layers(1, 1), {"W": numbers(55)}, "cudnn_lstm: W is f32[55], expected [56]"),
    (layers(1, 1), {"InitC": numbers(2, 2, 2)}, "InitC is f32[2, 2, 2], expected [1, 2, 2]"),
]


@pytest.mark.parametrize(("sample", "change", "message"), BAD_SHAPES)
def test_recurrent_shape_errors(sample, change, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        run(sample.op, {**sample.inputs, **change}, **sample.attrs)


@pytest.mark.parametrize(
    ("sample", "attrs", "message"),
    [
        (memory((2,)), {"gate_activation": "softmax"}, "'gate_activation' is 'softmax', expected"),
        (gated((2,)), {"activation": "elu"}, "gru: 'activation' is 'elu', expected one of sigmoid"),
        (layers(1, 1), {"dropout_prob": 1.0}, "'dropout_prob' is 1.0, expected 0 or more, below 1"),
    ],
)
def test_attributes_that_mean_nothing(sample, attrs, message):
    with pytest.raises(BadAttribute, match=re.escape(message)):
        run(sample.op, sample.inputs, **{**sample.attrs, **attrs})


def test_unit_has_four_activations():
    inputs = {slot: gated((2,)).inputs[slot] for slot in ("Input", "Weight")}
    with pytest.raises(BadAttribute, match="'activation' is 4, expected 0 to 3, for identity"):
        run("gru_unit", {**inputs, "HiddenPrev": numbers(2, 3)}, activation=4)
