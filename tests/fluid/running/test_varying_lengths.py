"""Batches of sequences of ever new lengths run without another compilation."""

from typing import Any

import numpy as np
import pytest

import fluid
from tests.golden import zoo

PLACE = fluid.CPUPlace()


def trained(model: str) -> tuple[Any, Any]:
    """Give an executor that has run the startup program of a model, and its loss."""
    loss = zoo.MODELS[model](fluid)[0]
    fluid.optimizer.SGD(learning_rate=0.01).minimize(loss)
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    return exe, loss


def sentences(lengths: list[int], draw: np.random.Generator, most: int) -> Any:
    words = draw.integers(0, most, (sum(lengths), 1))
    return fluid.create_lod_tensor(words, [lengths], PLACE)


def feed_of(model: str, lengths: list[int], draw: np.random.Generator) -> dict[str, Any]:
    if model == "tagger_gru_crf":
        return {"words": sentences(lengths, draw, 40), "tags": sentences(lengths, draw, 4)}
    labels = draw.integers(0, 2, (len(lengths), 1))
    return {"words": sentences(lengths, draw, 30), "label": labels}


@pytest.mark.parametrize("model", ["sentiment_conv", "sentiment_stacked_lstm", "tagger_gru_crf"])
def test_one_compilation_serves_all_lengths(model: str, fresh_programs: Any) -> None:
    exe, loss = trained(model)
    draw = np.random.default_rng(0)
    exe.run(feed=feed_of(model, [3, 1, 4], draw), fetch_list=[loss])
    compiled = exe.counters.compiles
    for batch in range(2, 27):
        lengths = draw.integers(1, 9, batch).tolist()
        (value,) = exe.run(feed=feed_of(model, lengths, draw), fetch_list=[loss])
        assert np.isfinite(value).all()
    assert exe.counters.compiles == compiled
    assert exe.counters.runs == 27


def test_lengths_that_happen_to_be_sizes_of_something_else(fresh_programs: Any) -> None:
    """As many words as sentences, one sentence, sentences of one length."""
    exe, loss = trained("sentiment_conv")
    draw = np.random.default_rng(1)
    exe.run(feed=feed_of("sentiment_conv", [2, 5], draw), fetch_list=[loss])
    compiled = exe.counters.compiles
    for lengths in ([1, 1, 1], [1], [7], [4, 4], [1, 1]):
        exe.run(feed=feed_of("sentiment_conv", lengths, draw), fetch_list=[loss])
    assert exe.counters.compiles == compiled


def test_the_same_lengths_again_are_not_even_bound(fresh_programs: Any) -> None:
    exe, loss = trained("sentiment_conv")
    draw = np.random.default_rng(2)
    for lengths in ([2, 5], [3, 4], [5, 2], [1, 6]):
        exe.run(feed=feed_of("sentiment_conv", lengths, draw), fetch_list=[loss])
    assert exe.counters.bindings == 2  # the startup program's, and that of seven words in two


def test_fetched_sequences_have_the_lengths_of_the_feed(fresh_programs: Any) -> None:
    words = fluid.layers.data("words", shape=[1], dtype="int64", lod_level=1)
    vectors = fluid.layers.embedding(words, size=[5, 2])
    exe = fluid.Executor(PLACE)
    exe.run(fluid.default_startup_program())
    feed = {"words": fluid.create_lod_tensor(np.ones((3, 1), "int64"), [[2, 1]], PLACE)}
    (value,) = exe.run(feed=feed, fetch_list=[vectors], return_numpy=False)
    assert value.recursive_sequence_lengths() == [[2, 1]]
    with pytest.raises(RuntimeError, match=r"fetch with return_numpy=False"):
        exe.run(feed=feed, fetch_list=[vectors])


def test_sequences_that_lack_their_lod_are_named(fresh_programs: Any) -> None:
    exe, loss = trained("sentiment_conv")
    feed = {"words": np.ones((3, 1), "int64"), "label": np.zeros((1, 1), "int64")}
    with pytest.raises(Exception, match=r"has no LoD[\s\S]*create_lod_tensor"):
        exe.run(feed=feed, fetch_list=[loss])
