"""Models of words, clicks and sentences for the benchmarks, written for any fluid.

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations

import numpy as np

WORDS, DIM, IDS = 40, 8, 50
STEPS, WIDTH, HEADS = 6, 16, 4


def word2vec(fluid):
    """Predict a word from the four before it, with one embedding table."""
    words = [_numbers(fluid, f"w{place}") for place in range(5)]
    vectors = [fluid.layers.embedding(w, size=[WORDS, DIM], param_attr="shared") for w in words[:4]]
    hidden = fluid.layers.fc(fluid.layers.concat(vectors, axis=1), size=24, act="sigmoid")
    classes = fluid.layers.fc(hidden, size=WORDS, act="softmax")
    return _cross_entropy(fluid, classes, words[4]), classes


def ctr_wide_deep(fluid, ids=IDS):
    """Click prediction from three sparse tables of `ids` rows and six numbers, deep and wide."""
    dense = fluid.layers.data(name="dense", shape=[6], dtype="float32")
    label = _numbers(fluid, "click")
    fields = [_numbers(fluid, f"c{place}") for place in range(3)]
    vectors = [fluid.layers.embedding(f, size=[ids, 4], is_sparse=True) for f in fields]
    hidden = fluid.layers.concat([*vectors, dense], axis=1)
    for size in (32, 16):
        hidden = fluid.layers.fc(hidden, size=size, act="relu")
    wide, deep = fluid.layers.fc(dense, size=2), fluid.layers.fc(hidden, size=2)
    classes = fluid.layers.softmax(fluid.layers.elementwise_add(deep, wide))
    return _cross_entropy(fluid, classes, label), classes


def sentiment_conv(fluid):
    """Sentences of several lengths, two sequence convolutions over their words."""
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = _numbers(fluid, "label")
    vectors = fluid.layers.embedding(words, size=[30, DIM])
    pools = [
        fluid.nets.sequence_conv_pool(vectors, 6, size, act="tanh", pool_type=pool)
        for size, pool in ((3, "sqrt"), (4, "max"))
    ]
    classes = fluid.layers.fc(pools, size=2, act="softmax")
    return _cross_entropy(fluid, classes, label), classes


def transformer_encoder(fluid):
    """One layer of a transformer's encoder over six steps."""
    steps = fluid.layers.data(name="x", shape=[STEPS, WIDTH], dtype="float32")
    label = _numbers(fluid, "label")
    hidden = _normed(fluid, steps, _attention(fluid, steps))
    inner = fluid.layers.fc(hidden, size=2 * WIDTH, num_flatten_dims=2, act="gelu")
    outer = fluid.layers.fc(inner, size=WIDTH, num_flatten_dims=2)
    hidden = _normed(fluid, hidden, outer)
    logits = fluid.layers.fc(fluid.layers.reduce_mean(hidden, dim=1), size=5)
    losses = fluid.layers.softmax_with_cross_entropy(logits, label)
    return fluid.layers.mean(losses), logits


def _attention(fluid, steps):
    query, key, value = [
        fluid.layers.fc(steps, size=WIDTH, num_flatten_dims=2, bias_attr=False) for _ in range(3)
    ]
    scores = fluid.layers.matmul(
        _heads(fluid, query), _heads(fluid, key), transpose_y=True, alpha=(WIDTH // HEADS) ** -0.5
    )
    mixed = fluid.layers.matmul(fluid.layers.softmax(scores), _heads(fluid, value))
    joined = fluid.layers.reshape(fluid.layers.transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, WIDTH])
    return fluid.layers.fc(joined, size=WIDTH, num_flatten_dims=2)


def _heads(fluid, steps):
    parts = fluid.layers.reshape(steps, [0, 0, HEADS, WIDTH // HEADS])
    return fluid.layers.transpose(parts, perm=[0, 2, 1, 3])


def _normed(fluid, a, b):
    return fluid.layers.layer_norm(fluid.layers.elementwise_add(a, b), begin_norm_axis=2)


def _numbers(fluid, name):
    return fluid.layers.data(name=name, shape=[1], dtype="int64")


def _cross_entropy(fluid, classes, label):
    return fluid.layers.mean(fluid.layers.cross_entropy(input=classes, label=label))


# ---- what is fed --------------------------------------------------------------------------------


def draw_words(random, n):
    """Five word ids per row."""
    return {f"w{place}": _drawn(random, WORDS, n) for place in range(5)}


def draw_clicks(random, n, ids=IDS):
    """Three ids of sparse fields, six numbers, and whether there was a click."""
    fed = {f"c{place}": _drawn(random, ids, n) for place in range(3)}
    fed.update(dense=random.rand(n, 6).astype(np.float32), click=_drawn(random, 2, n))
    return fed


def draw_sentences(random, n):
    """Sentences of 2 to 5 words, as (words, lengths), and a label."""
    lengths = [int(length) for length in random.randint(2, 6, n)]
    return {"words": (_drawn(random, 30, sum(lengths)), lengths), "label": _drawn(random, 2, n)}


def draw_steps(random, n):
    """Six steps of sixteen numbers, and a class."""
    return {"x": random.randn(n, STEPS, WIDTH).astype(np.float32), "label": _drawn(random, 5, n)}


def _drawn(random, most, n):
    return random.randint(0, most, (n, 1)).astype(np.int64)
