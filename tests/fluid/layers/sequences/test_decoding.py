"""`rnn`, decoders and beam search against the same in plain Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable

pytestmark = pytest.mark.usefixtures("fresh_programs")

WORDS, START, END = 6, 0, 1
Beam = tuple[float, list[int]]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(exe: fluid.Executor, feed: dict[str, Any], fetches: Sequence[Any], **how: bool) -> Any:
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=list(fetches), **how)


def weights() -> list[Any]:
    """The parameters of the default program, in order of making."""
    params = fluid.default_main_program().all_parameters()
    return [np.array(fluid.global_scope().find_var(param.name).get_tensor()) for param in params]


# ---- cells


def test_gru_over_sequences_of_different_lengths(exe: fluid.Executor) -> None:
    x, lengths = fluid.data("x", [3, 4, 2]), fluid.data("lengths", [3], "int32")
    out, last = layers.rnn(layers.GRUCell(5), x, sequence_length=lengths)
    feed = {"x": values(3, 4, 2), "lengths": np.array([4, 1, 2], "int32")}
    got, got_last = run(exe, feed, [out, last])
    state, states = np.zeros((3, 5), np.float32), []
    for step in range(4):
        after = gru(feed["x"][:, step], state, *weights())
        states.append(after)
        state = np.where((feed["lengths"] > step)[:, None], after, state)
    np.testing.assert_allclose(got, np.stack(states, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got_last, state, rtol=1e-4, atol=1e-6)


def gru(x: Any, h: Any, gate_weight: Any, weight: Any, gate_bias: Any, bias: Any) -> Any:
    reset, update = np.split(sigmoid(np.hstack([x, h]) @ gate_weight + gate_bias), 2, axis=1)
    candidate = np.tanh(np.hstack([x, reset * h]) @ weight + bias)
    return update * h + (1 - update) * candidate


def test_lstm_reversed_time_major(exe: fluid.Executor) -> None:
    x = fluid.data("x", [4, 3, 2])
    begin = [fluid.data(name, [3, 5]) for name in ("h", "c")]
    cell = layers.LSTMCell(5, forget_bias=0.5)
    out, last = layers.rnn(cell, x, begin, time_major=True, is_reverse=True)
    feed = {"x": values(4, 3, 2), "h": values(3, 5, seed=1), "c": values(3, 5, seed=2)}
    got, *got_last = run(exe, feed, [out, *last])
    (weight, bias), h, c = weights(), feed["h"], feed["c"]
    states = []
    for step in reversed(range(4)):
        gates = np.hstack([feed["x"][step], h]) @ weight + bias
        i, j, f, o = np.split(gates, 4, axis=1)
        c = c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        states.insert(0, h)
    np.testing.assert_allclose(got, states, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got_last, [h, c], rtol=1e-4, atol=1e-6)


# ---- decoders


class Chain(layers.RNNCell):
    """Words follow each other by a table: what a word puts out is its row. States count steps."""

    def __init__(self, table: Variable) -> None:
        self.table = table

    def call(self, inputs: Variable, states: Variable, **kwargs: Any) -> tuple[Variable, Variable]:
        return layers.matmul(inputs, self.table), states + 1.0


def chain() -> tuple[Chain, Variable]:
    """The cell, and its states [batch, 1] before the first step."""
    return Chain(fluid.data("table", [WORDS, WORDS])), fluid.data("states", [None, 1])


def embedded(words: Variable) -> Variable:
    return fluid.one_hot(words, WORDS)


def log_chances(table: Any) -> Any:
    return table - np.log(np.exp(table).sum(1, keepdims=True))


def test_teacher_forcing(exe: fluid.Executor) -> None:
    x, lengths = fluid.data("x", [2, 5, WORDS]), fluid.data("lengths", [2], "int32")
    cell, states = chain()
    decoder = layers.BasicDecoder(cell, layers.TrainingHelper(x, lengths), lambda x: x * 2.0)
    out, last, counts = layers.dynamic_decode(decoder, states, return_length=True)
    feed = {"x": values(2, 5, WORDS), "lengths": np.array([3, 5], "int32")}
    feed |= {"table": values(WORDS, WORDS, seed=1), "states": np.zeros((2, 1), np.float32)}
    got, words, got_last, got_counts = run(exe, feed, [*out, last, counts])
    expected = 2 * feed["x"] @ feed["table"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert (words == expected.argmax(-1)).all()
    assert got_counts.tolist() == [3, 5]
    assert got_last.tolist() == [[5.0], [5.0]]


@pytest.mark.parametrize("is_test", [False, True])
def test_states_of_finished_beams(exe: fluid.Executor, is_test: bool) -> None:
    x, lengths = fluid.data("x", [5, 2, WORDS]), fluid.data("lengths", [2], "int32")
    cell, states = chain()
    helper = layers.TrainingHelper(x, lengths, time_major=True)
    out, last = layers.dynamic_decode(
        layers.BasicDecoder(cell, helper),
        states,
        max_step_num=2,
        output_time_major=True,
        impute_finished=True,
        is_test=is_test,
    )
    feed = {"x": values(5, 2, WORDS), "lengths": np.array([1, 5], "int32")}
    feed |= {"table": values(WORDS, WORDS, seed=1), "states": np.zeros((2, 1), np.float32)}
    got, got_last = run(exe, feed, [out.cell_outputs, last])
    np.testing.assert_allclose(got, feed["x"][:3] @ feed["table"], rtol=1e-5)
    assert got_last.tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize("sampled", [False, True])
def test_greedy_decoding(exe: fluid.Executor, sampled: bool) -> None:
    cell, states = chain()
    starts = fluid.data("starts", [None], "int64")
    draws = {"softmax_temperature": 1e-3, "seed": 3}
    helper = (
        layers.SampleEmbeddingHelper(embedded, starts, END, **draws)
        if sampled
        else layers.GreedyEmbeddingHelper(embedded, starts, END)
    )
    decoder = layers.BasicDecoder(cell, helper)
    out, _, counts = layers.dynamic_decode(decoder, states, max_step_num=7, return_length=True)
    table = values(WORDS, WORDS, seed=7)
    feed = {"starts": np.arange(2, WORDS), "table": table, "states": np.zeros((4, 1), np.float32)}
    words, got_counts = run(exe, feed, [out.sample_ids, counts])
    for word, sentence, count in zip(feed["starts"], words, got_counts, strict=True):
        expected = followed(table, int(word), words.shape[1])
        assert sentence.tolist() == expected
        assert count == (expected.index(END) + 1 if END in expected else len(expected))


def followed(table: Any, word: int, count: int) -> list[int]:
    """The likeliest words behind a word."""
    results: list[int] = []
    for _ in range(count):
        word = int(table[word].argmax())
        results.append(word)
    return results


@pytest.mark.parametrize("seed", range(3))
def test_beams_of_a_decoder(exe: fluid.Executor, seed: int) -> None:
    cell, states = chain()
    decoder = layers.BeamSearchDecoder(cell, START, END, 3, embedding_fn=embedded)
    out, last, counts = layers.dynamic_decode(decoder, states, max_step_num=3, return_length=True)
    table = values(WORDS, WORDS, seed=seed)
    feed = {"table": table, "states": np.zeros((2, 1), np.float32)}
    words, chances, got_counts = run(exe, feed, [out, last.log_probs, counts])
    expected = [(0.0, [START])]
    for _ in range(words.shape[1]):
        expected = continued(expected, log_chances(table), 3)
    for entry in range(2):
        assert words[entry].T.tolist() == [sentence[1:] for _, sentence in expected]
        np.testing.assert_allclose(chances[entry], [c for c, _ in expected], rtol=1e-4)
    assert got_counts.shape == (2, 3)


def test_beams_without_memory_for_training(exe: fluid.Executor) -> None:
    """As release 1.8 does: here, where a beam has ended, the one in its place is taken as ended."""
    cell, states = chain()
    decoder = layers.BeamSearchDecoder(cell, START, END, 3, embedding_fn=embedded)
    out, last = layers.dynamic_decode(decoder, states, max_step_num=3, is_test=True)
    feed = {"table": values(WORDS, WORDS, seed=1), "states": np.zeros((2, 1), np.float32)}
    words, chances = run(exe, feed, [out, last.log_probs])
    assert words[1].tolist() == [[1, 4, 4], [1, 5, 4], [1, 1, 5], [1, 1, 0]]
    np.testing.assert_allclose(chances[1], [-1.417568, -2.550130, -4.691516], rtol=1e-5)


def continued(beams: list[Beam], chances: Any, count: int) -> list[Beam]:
    """The best sentences one word longer; finished ones continue with END at no cost."""
    longer: list[Beam] = []
    for score, words in beams:
        if words[-1] == END:
            longer.append((score, [*words, END]))
            continue
        longer += [
            (score + float(chances[words[-1]][word]), [*words, word]) for word in range(WORDS)
        ]
    return sorted(longer, key=lambda beam: -beam[0])[:count]


def test_decoder_subclass_errors() -> None:
    for method, count in (("initialize", 1), ("step", 3), ("finalize", 3)):
        with pytest.raises(NotImplementedError):
            getattr(layers.Decoder(), method)(*[None] * count)
    with pytest.raises(NotImplementedError, match="call"):
        layers.RNNCell()(None, None)
    with pytest.raises(NotImplementedError, match="state_shape"):
        layers.RNNCell().get_initial_states(fluid.data("x", [None, 2]))


def test_following_beams_back(exe: fluid.Executor) -> None:
    words, parents = (fluid.data(name, [3, 1, 2], "int64") for name in ("words", "parents"))
    feed = {
        "words": np.array([[[2, 2]], [[6, 1]], [[3, 9]]]),
        "parents": np.array([[[0, 0]], [[1, 0]], [[0, 1]]]),
    }
    (got,) = run(exe, feed, [layers.gather_tree(words, parents)])
    assert got[:, 0].T.tolist() == [[2, 6, 3], [2, 1, 9]]


# ---- beams of sequences


def test_beams_in_arrays(exe: fluid.Executor) -> None:
    """The loop of a translator: each source has its own table, and beams may end early."""
    sources, beam_size, steps = 3, 2, 4
    actual, scores = translator(beam_size, steps)
    tables = values(sources, WORDS, WORDS, seed=5) * 2
    lod = [[1] * sources, [1] * sources]
    begin = lambda dtype: fluid.create_lod_tensor(  # noqa: E731
        np.zeros((sources, 1), dtype), lod, fluid.CPUPlace()
    )
    table = fluid.create_lod_tensor(tables.reshape(sources, -1), [[1] * sources], fluid.CPUPlace())
    feed = {"words": begin("int64"), "scores": begin("float32"), "table": table}
    words, totals = run(exe, feed, [actual, scores], return_numpy=False)
    outer, inner = words.lod()
    for source in range(sources):
        expected = [(0.0, [START])]
        for _ in range(steps):
            expected = continued(expected, log_chances(tables[source]), beam_size)
        places = range(outer[source], outer[source + 1])
        got = [np.array(words)[inner[place] : inner[place + 1]].tolist() for place in places]
        assert got == [until_end(sentence) for _, sentence in expected]
        best = [np.array(totals)[inner[place + 1] - 1] for place in places]
        np.testing.assert_allclose(best, [score for score, _ in expected], rtol=1e-4)


def until_end(words: list[int]) -> list[int]:
    return words[: words.index(END) + 1] if END in words else words


def translator(beam_size: int, steps: int) -> tuple[Variable, Variable]:
    words = fluid.data("words", [None, 1], "int64", lod_level=2)
    scores = fluid.data("scores", [None, 1], lod_level=2)
    table = fluid.data("table", [None, WORDS * WORDS], lod_level=1)
    i, n = (layers.fill_constant([1], "int64", value) for value in (0, steps))
    arrays = [layers.array_write(each, i) for each in (words, scores, table)]
    going_on = layers.less_than(i, n)
    with layers.While(going_on).block():
        before, totals, tables = (layers.array_read(array, i) for array in arrays)
        tables = layers.sequence_expand(tables, totals)
        rows = layers.reshape(tables, [-1, WORDS, WORDS])
        chosen = layers.unsqueeze(fluid.one_hot(layers.reshape(before, [-1]), WORDS), [1])
        row = layers.reshape(layers.matmul(chosen, rows), [-1, WORDS])
        chances = layers.softmax(layers.lod_reset(row, y=totals))
        best, places = layers.topk(chances, k=beam_size)
        sums = layers.elementwise_add(layers.log(best), layers.reshape(totals, [-1]), axis=0)
        after, after_scores = layers.beam_search(
            before, totals, places, sums, beam_size=beam_size, end_id=END
        )
        layers.increment(i)
        for value, array in zip((after, after_scores, tables), arrays, strict=True):
            layers.array_write(value, i, array)
        alive = layers.logical_not(layers.is_empty(after))
        layers.logical_and(layers.less_than(i, n), alive, out=going_on)
    return layers.beam_search_decode(arrays[0], arrays[1], beam_size, END)
