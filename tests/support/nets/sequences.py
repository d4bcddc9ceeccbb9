"""Recurrent networks over sentences and steps, and a loop, for the benchmarks and any fluid.

As `texts.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations

import numpy as np

WORDS, TAGS, DIM = 40, 4, 8
STEPS, BATCH, WIDTH = 4, 5, 6
TURNS, NUMBERS = 3, 5


def sentiment_stacked_lstm(fluid):
    """Two stacked LSTMs, one in each direction, with max pooling over time."""
    words = _words(fluid, "words")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    vectors = fluid.layers.embedding(words, size=[WORDS, DIM])
    mixed = fluid.layers.fc(vectors, size=16)
    states, _ = fluid.layers.dynamic_lstm(mixed, size=16, use_peepholes=False)
    mixed = fluid.layers.fc([mixed, states], size=16)
    states, _ = fluid.layers.dynamic_lstm(mixed, size=16, is_reverse=True, use_peepholes=False)
    most = [fluid.layers.sequence_pool(each, "max") for each in (mixed, states)]
    classes = fluid.layers.fc(most, size=2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=classes, label=label))
    return loss, classes


def tagger_gru_crf(fluid):
    """A tag for each word: a bidirectional GRU and a CRF."""
    words, tags = _words(fluid, "words"), _words(fluid, "tags")
    vectors = fluid.layers.embedding(words, size=[WORDS, DIM])
    states = [
        fluid.layers.dynamic_gru(fluid.layers.fc(vectors, size=15), size=5, is_reverse=reverse)
        for reverse in (False, True)
    ]
    emission = fluid.layers.fc(fluid.layers.concat(states, axis=1), size=TAGS)
    field = fluid.ParamAttr(name="transitions")
    cost = fluid.layers.linear_chain_crf(emission, tags, param_attr=field)
    return fluid.layers.mean(cost), fluid.layers.crf_decoding(emission, param_attr=field)


def static_rnn_lm(fluid):
    """A StaticRNN over a fixed number of steps."""
    states = _steps(fluid, "x")
    first = fluid.layers.fill_constant(shape=[BATCH, WIDTH], dtype="float32", value=0.1)
    first.stop_gradient = False
    inputs = fluid.layers.fc(states, size=WIDTH, num_flatten_dims=2)
    network = fluid.layers.StaticRNN()
    with network.step():
        step, before = network.step_input(inputs), network.memory(init=first)
        hidden = fluid.layers.fc([step, before], size=WIDTH, act="tanh")
        network.update_memory(before, hidden)
        network.step_output(hidden)
    result = network()
    error = fluid.layers.square_error_cost(result, _steps(fluid, "y"))
    return fluid.layers.mean(error), result


def while_power(fluid):
    """A while loop over an array, with gradients."""
    features = fluid.layers.data(name="x", shape=[NUMBERS], dtype="float32")
    target = fluid.layers.data(name="y", shape=[NUMBERS], dtype="float32")
    hidden = fluid.layers.fc(features, size=NUMBERS, act="tanh")
    turn = fluid.layers.fill_constant(shape=[1], dtype="int64", value=0)
    turns = fluid.layers.fill_constant(shape=[1], dtype="int64", value=TURNS)
    array = fluid.layers.array_write(hidden, turn)
    more = fluid.layers.less_than(x=turn, y=turns)
    loop = fluid.layers.While(cond=more)
    with loop.block():
        half = fluid.layers.scale(fluid.layers.array_read(array, turn), 0.5)
        following = fluid.layers.elementwise_add(half, hidden)
        fluid.layers.increment(turn, value=1, in_place=True)
        fluid.layers.array_write(following, turn, array=array)
        fluid.layers.less_than(x=turn, y=turns, cond=more)
    result = fluid.layers.array_read(array, turns)
    return fluid.layers.mean(fluid.layers.square_error_cost(result, target)), result


def _words(fluid, name):
    return fluid.layers.data(name=name, shape=[1], dtype="int64", lod_level=1)


def _steps(fluid, name):
    return fluid.layers.data(
        name=name, shape=[STEPS, BATCH, WIDTH], dtype="float32", append_batch_size=False
    )


# ---- what is fed --------------------------------------------------------------------------------


def draw_reviews(random, n):
    """Sentences of 2 to 5 words, as (words, lengths), and a label."""
    lengths = _lengths(random, n)
    label = random.randint(0, 2, (n, 1)).astype(np.int64)
    return {"words": (_drawn(random, WORDS, sum(lengths)), lengths), "label": label}


def draw_tagged(random, n):
    """Sentences of 2 to 5 words and a tag for each word, as (numbers, lengths)."""
    lengths = _lengths(random, n)
    words, tags = (_drawn(random, most, sum(lengths)) for most in (WORDS, TAGS))
    return {"words": (words, lengths), "tags": (tags, lengths)}


def draw_states(random, n):
    """Input and target steps; their number is fixed by the network, regardless of n."""
    shape = (STEPS, BATCH, WIDTH)
    return {"x": _normal(random, *shape), "y": random.rand(*shape).astype(np.float32)}


def draw_pairs(random, n):
    """Five numbers and five others."""
    return {"x": _normal(random, n, NUMBERS), "y": random.rand(n, NUMBERS).astype(np.float32)}


def _lengths(random, n):
    return [int(length) for length in random.randint(2, 6, n)]


def _drawn(random, most, n):
    return random.randint(0, most, (n, 1)).astype(np.int64)


def _normal(random, *shape):
    return random.randn(*shape).astype(np.float32)
