"""Layers of sequences and recurrent nets: shapes, parameters, errors, and what they compute."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def rows(*sizes: int, name: str = "x", dtype: str = "float32", level: int = 1) -> Variable:
    """Declare rows of sequences: [rows, *sizes]."""
    return fluid.data(name, [None, *sizes], dtype, lod_level=level)


def batch(lengths: Sequence[int], *sizes: int, seed: int = 0) -> fluid.LoDTensor:
    """Return random rows in sequences of these lengths."""
    data = np.random.default_rng(seed).normal(size=(sum(lengths), *sizes)).astype(np.float32)
    return fluid.create_lod_tensor(data, [list(lengths)], fluid.CPUPlace())


def params() -> dict[str, tuple[int, ...]]:
    return {
        parameter.name: parameter.shape for parameter in default_main_program().all_parameters()
    }


# ---- what is recorded


@pytest.mark.parametrize(
    ("build", "shape", "level"),
    [
        (lambda: layers.sequence_conv(rows(8), 5, 4, act="relu"), (-1, 5), 1),
        (lambda: layers.row_conv(rows(8), 2), (-1, 8), 1),
        (lambda: layers.sequence_softmax(rows(1)), (-1, 1), 1),
        (lambda: layers.sequence_pool(rows(8), "average"), (-1, 8), 0),
        (lambda: layers.sequence_pool(rows(8, level=2), "MAX"), (-1, 8), 1),
        (lambda: layers.sequence_first_step(rows(8)), (-1, 8), 0),
        (lambda: layers.sequence_last_step(rows(8)), (-1, 8), 0),
        (lambda: layers.sequence_concat([rows(8), rows(8, name="y")]), (-1, 8), 1),
        (lambda: layers.sequence_reverse(rows(8)), (-1, 8), 1),
        (lambda: layers.sequence_reshape(rows(8), 4), (-1, 4), 1),
        (lambda: layers.sequence_enumerate(rows(1, dtype="int64"), 3), (-1, 3), 1),
        (lambda: layers.sequence_expand(rows(8, level=0), rows(1, name="y")), (-1, 8), 0),
        (lambda: layers.sequence_expand(rows(8), rows(1, name="y")), (-1, 8), 1),
        (lambda: layers.sequence_expand_as(rows(8, level=0), rows(1, name="y")), (-1, 8), 1),
        (lambda: layers.lod_reset(rows(8), target_lod=[0, 2]), (-1, 8), 1),
        (lambda: layers.lod_append(rows(8), [0, 2]), (-1, 8), 2),
        (lambda: layers.dynamic_lstm(rows(32), 32)[0], (-1, 8), 1),
        (lambda: layers.dynamic_lstmp(rows(32), 32, 5)[0], (-1, 5), 1),
        (lambda: layers.dynamic_gru(rows(24), 8, is_reverse=True), (-1, 8), 1),
    ],
)
def test_shape_and_lod_level(build: Callable[[], Variable], shape: Any, level: int) -> None:
    out = build()
    assert (out.shape, out.lod_level) == (shape, level)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: layers.sequence_conv(rows(8), 5, 4), {"w_0": (32, 5), "b_0": (5,)}),
        (lambda: layers.row_conv(rows(8), 2), {"w_0": (3, 8)}),
        (lambda: layers.dynamic_lstm(rows(32), 32), {"w_0": (8, 32), "b_0": (1, 56)}),
        (
            lambda: layers.dynamic_lstm(rows(32), 32, use_peepholes=False),
            {"w_0": (8, 32), "b_0": (1, 32)},
        ),
        (
            lambda: layers.dynamic_lstmp(rows(32), 32, 5),
            {"w_0": (5, 32), "w_1": (8, 5), "b_0": (1, 56)},
        ),
        (lambda: layers.dynamic_gru(rows(24), 8), {"w_0": (8, 24), "b_0": (1, 24)}),
        (
            lambda: layers.gru_unit(rows(24, level=0), rows(8, name="h", level=0), 24),
            {"w_0": (8, 24), "b_0": (1, 24)},
        ),
        (
            lambda: layers.gru_unit(
                rows(24, level=0), rows(8, name="h", level=0), 24, bias_attr=False
            ),
            {"w_0": (8, 24)},
        ),
        (
            lambda: layers.lstm_unit(*(rows(4, name=name, level=0) for name in "xhc")),
            {"w_0": (8, 16), "b_0": (16,)},
        ),
    ],
)
def test_parameters(build: Callable[[], Any], expected: dict[str, Any]) -> None:
    build()
    assert {name.split(".")[1]: shape for name, shape in params().items()} == expected


def test_attributes_of_a_convolution() -> None:
    layers.sequence_conv(rows(8), 5, filter_size=4)
    op = default_main_program().global_block().ops[0]
    known = {name: op.attr(name) for name in ("contextStart", "contextLength", "contextStride")}
    assert known == {"contextStart": -2, "contextLength": 4, "contextStride": 1}


def test_activations_of_a_step_are_numbers() -> None:
    layers.gru_unit(rows(24, level=0), rows(8, name="h", level=0), 24, activation="relu")
    op = default_main_program().global_block().ops[0]
    assert (op.attr("activation"), op.attr("gate_activation")) == (3, 1)


def test_weights_of_layers_are_one_parameter() -> None:
    x, states = fluid.data("x", [7, 4, 5]), fluid.data("states", [4, 4, 3])
    out, last_h, last_c = layers.lstm(x, states, states, 7, 3, num_layers=2, is_bidirec=True)
    assert (out.shape, last_h.shape, last_c.shape) == ((7, 4, 6), (4, 4, 3), (4, 4, 3))
    assert list(params().values()) == [(504,)]


def test_dropped_outputs_have_a_mask_and_the_seed_of_the_program() -> None:
    default_main_program().random_seed = 5
    x, states = fluid.data("x", [7, 4, 5]), fluid.data("states", [2, 4, 3])
    layers.lstm(x, states, states, 7, 3, 2)
    layers.lstm(x, states, states, 7, 3, 2, dropout_prob=0.5)
    layers.lstm(x, states, states, 7, 3, 2, dropout_prob=0.5, is_test=True)
    steady, dropping, testing = default_main_program().global_block().ops
    assert [op.attr("seed") for op in (steady, dropping, testing)] == [-1, 5, -1]
    masked = ["DropoutMask" in op.output_names for op in (steady, dropping, testing)]
    assert masked == [False, True, False]


# ---- errors


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: layers.sequence_pool(rows(8), "mean"), ValueError, "'mean', not one of"),
        (lambda: layers.sequence_pool(rows(1, dtype="int64"), "sum"), TypeError, "data type"),
        (lambda: layers.sequence_pool("x", "sum"), TypeError, "must be Variable"),
        (lambda: layers.sequence_concat(rows(8)), TypeError, "must be list"),
        (lambda: layers.sequence_concat([rows(8), 3]), TypeError, r"'input\[1\]'"),
        (lambda: layers.lod_reset(rows(8)), ValueError, "needs y or target_lod"),
        (
            lambda: layers.lod_append(rows(8), 3),
            ValueError,
            "'level' in lod_append must be Variable or list of int",
        ),
        (lambda: layers.dynamic_lstm(rows(32), 32, bias_attr=False), ValueError, "cannot be False"),
        (
            lambda: layers.dynamic_lstm(rows(32), 32, h_0=rows(7, name="h", level=0)),
            ValueError,
            r"h_0 of dynamic_lstm must be \[sequences, 8\], but 'h' is \[-1, 7\]",
        ),
        (
            lambda: layers.dynamic_lstmp(rows(32), 32, 5, cell_clip=-1.0),
            ValueError,
            "cell_clip of dynamic_lstmp is -1.0",
        ),
        (
            lambda: layers.gru_unit(
                rows(24, level=0), rows(8, name="h", level=0), 24, activation="elu"
            ),
            ValueError,
            "identity, sigmoid, tanh, relu, but received 'elu'",
        ),
        (
            lambda: layers.lstm_unit(
                rows(4, level=0), rows(3, name="h", level=0), rows(4, name="c", level=0)
            ),
            ValueError,
            "must have the same width, but x_t is",
        ),
    ],
)
def test_bad_arguments(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_a_batch_without_lod_is_reported(exe: fluid.Executor) -> None:
    out = layers.sequence_pool(rows(2), "sum")
    with pytest.raises(Exception, match="'x' has no LoD"):
        exe.run(feed={"x": np.ones((3, 2), np.float32)}, fetch_list=[out])


# ---- what is computed


def test_ever_new_lengths_are_compiled_once(exe: fluid.Executor) -> None:
    hidden, _ = layers.dynamic_lstm(layers.fc(rows(4), 12), 12)
    loss = layers.mean(layers.sequence_pool(hidden, "sqrt"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    before = exe.counters.compiles
    for step in range(1, 6):
        exe.run(feed={"x": batch(range(1, step + 1), 4)}, fetch_list=[loss])
    assert exe.counters.compiles == before + 1


def test_a_memory_learns_which_row_came_first(exe: fluid.Executor) -> None:
    x, label = rows(2), fluid.data("label", [None, 1])
    hidden, _ = layers.dynamic_lstm(layers.fc(x, 32), 32, is_reverse=True)
    guess = layers.fc(layers.sequence_first_step(hidden), 1)
    loss = layers.mean(layers.square_error_cost(guess, label))
    fluid.optimizer.Adam(0.02).minimize(loss)
    exe.run(fluid.default_startup_program())
    seen = []
    for step in range(60):
        fed = batch([1, 3, 2, 4, 3], 2, seed=step)
        firsts = np.array(fed)[[0, 1, 4, 6, 10], :1]
        feed = {"x": fed, "label": firsts}
        seen.append(float(exe.run(feed=feed, fetch_list=[loss])[0].item()))
    assert np.mean(seen[-10:]) < 0.2 * np.mean(seen[:10])


def test_sequence_unpad_inverts_pad(exe: fluid.Executor) -> None:
    x = rows(2)
    x.stop_gradient = False
    padded, length = layers.sequence_pad(x, layers.fill_constant([1], "float32", 9.0))
    back = layers.sequence_unpad(layers.scale(padded, 2.0), length)
    (slope,) = fluid.gradients([layers.reduce_sum(back)], [x])
    fed = batch([2, 0, 3], 2)
    fetched = [padded, length, back, slope]
    result = exe.run(feed={"x": fed}, fetch_list=fetched, return_numpy=False)
    assert np.array(result[0]).shape == (3, 3, 2)
    assert np.array(result[0])[1].tolist() == [[9, 9]] * 3
    assert np.array(result[1]).tolist() == [2, 0, 3]
    assert result[2].recursive_sequence_lengths() == [[2, 0, 3]]
    np.testing.assert_array_equal(np.array(result[2]), 2 * np.array(fed))
    np.testing.assert_array_equal(np.array(result[3]), np.full((5, 2), 2))


def test_mask_as_wide_as_the_longest(exe: fluid.Executor) -> None:
    lengths = fluid.data("lengths", [None], "int64")
    masks = [layers.sequence_mask(lengths), layers.sequence_mask(lengths, 2, "bool")]
    result = exe.run(feed={"lengths": np.array([1, 3])}, fetch_list=masks)
    assert result[0].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert result[1].tolist() == [[True, False], [True, True]]


def test_pooling_two_levels(exe: fluid.Executor) -> None:
    inner = layers.sequence_pool(rows(1, level=2), "sum")
    outer = layers.sequence_pool(inner, "max")
    data = np.array([[1], [2], [4], [8]], np.float32)
    fed = fluid.create_lod_tensor(data, [[2, 1], [1, 2, 1]], fluid.CPUPlace())
    result = exe.run(feed={"x": fed}, fetch_list=[inner, outer], return_numpy=False)
    assert np.array(result[0])[:, 0].tolist() == [1, 6, 8]
    assert result[0].recursive_sequence_lengths() == [[2, 1]]
    assert np.array(result[1])[:, 0].tolist() == [6, 8]


def test_only_one_result_of_a_step_counts(exe: fluid.Executor) -> None:
    """The gradient of the cell that nobody uses is 0."""
    states = [rows(3, name=name, level=0) for name in "xhc"]
    for state in states:
        state.stop_gradient = False
    hidden, _ = layers.lstm_unit(*states)
    slopes = fluid.gradients([layers.reduce_sum(hidden)], states)
    exe.run(fluid.default_startup_program())
    feed = {name: np.ones((2, 3), np.float32) for name in "xhc"}
    for found in exe.run(feed=feed, fetch_list=slopes):
        assert found.shape == (2, 3)
        assert np.abs(found).min() > 0.0


def test_dropout_between_layers_is_undone_in_testing(exe: fluid.Executor) -> None:
    x, states = fluid.data("x", [3, 2, 4]), fluid.data("states", [2, 2, 3])
    out, _, _ = layers.lstm(x, states, states, 3, 3, 2, dropout_prob=0.5)
    loss = layers.reduce_mean(out)
    test = default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((3, 2, 4), np.float32), "states": np.zeros((2, 2, 3), np.float32)}
    tested = [exe.run(test, feed=feed, fetch_list=[out])[0] for _ in range(2)]
    np.testing.assert_array_equal(*tested)
    trained = [exe.run(feed=feed, fetch_list=[out])[0] for _ in range(8)]
    assert any((trained[0] != each).any() for each in trained)


def test_expanded_rows_stay_beside_their_sequence(exe: fluid.Executor) -> None:
    """What attention over a sequence is made of: a state for every row, weights that sum to 1."""
    encoded, state = rows(2), rows(2, name="state", level=0)
    scores = layers.reduce_sum(
        layers.elementwise_mul(encoded, layers.sequence_expand(state, encoded)),
        dim=1,
        keep_dim=True,
    )
    weights = layers.sequence_softmax(scores)
    result = layers.sequence_pool(layers.elementwise_mul(encoded, weights, axis=0), "sum")
    fed, states = batch([2, 3], 2), np.array([[1, 0], [0, 1]], np.float32)
    got = exe.run(feed={"x": fed, "state": states}, fetch_list=[result])[0]
    for index, part in enumerate((np.array(fed)[:2], np.array(fed)[2:])):
        shares = np.exp(part @ states[index])
        np.testing.assert_allclose(got[index], shares @ part / shares.sum(), rtol=1e-5)
