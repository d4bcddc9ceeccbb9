"""BERT's encoder (Devlin et al., 2018): word, position and segment embeddings, then layers.

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

Size = namedtuple("Size", "words positions width heads depth")
Size.__doc__ = """Vocabulary, maximum number of tokens, numbers per token, heads, layers."""

BASE = Size(words=30522, positions=512, width=768, heads=12, depth=12)
TINY = Size(words=50, positions=16, width=16, heads=2, depth=2)

SEGMENTS = 2
MASKED = 1e4
"""Subtracted from the scores of masked tokens."""


def encoder(fluid, tokens=128, size=BASE):
    """The encoded tokens, float32[n, tokens, width]."""
    words, segments = (
        fluid.layers.data(name=name, shape=[tokens], dtype="int64")
        for name in ("words", "segments")
    )
    mask = fluid.layers.data(name="mask", shape=[tokens], dtype="float32")
    away = fluid.layers.scale(mask, scale=MASKED, bias=-MASKED)
    away = fluid.layers.reshape(away, [-1, 1, 1, tokens])
    result = _embedded(fluid, words, segments, tokens, size)
    for _ in range(size.depth):
        result = _normed(fluid, result, _attention(fluid, result, away, size))
        inner = _dense(fluid, result, 4 * size.width, act="gelu")
        result = _normed(fluid, result, _dense(fluid, inner, size.width))
    return result


def draw(random, n, tokens=128, size=BASE):
    """Token ids, their segments and a mask whose last tenth is padding."""
    mask = np.ones((n, tokens), np.float32)
    mask[:, tokens - tokens // 10 :] = 0.0
    segments = np.repeat(np.arange(tokens)[None] >= tokens // 2, n, axis=0)
    words = random.randint(0, size.words, (n, tokens))
    return {"words": words.astype(np.int64), "segments": segments.astype(np.int64), "mask": mask}


def _embedded(fluid, words, segments, tokens, size):
    places = fluid.layers.assign(np.arange(tokens, dtype=np.int64)[None])
    vectors = fluid.embedding(words, size=[size.words, size.width])
    for ids, count in ((segments, SEGMENTS), (places, size.positions)):
        more = fluid.embedding(ids, size=[count, size.width])
        vectors = fluid.layers.elementwise_add(vectors, more)
    return fluid.layers.layer_norm(vectors, begin_norm_axis=2)


def _attention(fluid, found, away, size):
    query, key, value = (_heads(fluid, _dense(fluid, found, size.width), size) for _ in range(3))
    scale = (size.width // size.heads) ** -0.5
    scores = fluid.layers.matmul(query, key, transpose_y=True, alpha=scale)
    weights = fluid.layers.softmax(fluid.layers.elementwise_add(scores, away))
    mixed = fluid.layers.transpose(fluid.layers.matmul(weights, value), perm=[0, 2, 1, 3])
    return _dense(fluid, fluid.layers.reshape(mixed, [0, 0, size.width]), size.width)


def _heads(fluid, found, size):
    parts = fluid.layers.reshape(found, [0, 0, size.heads, size.width // size.heads])
    return fluid.layers.transpose(parts, perm=[0, 2, 1, 3])


def _dense(fluid, found, width, act=None):
    return fluid.layers.fc(found, size=width, num_flatten_dims=2, act=act)


def _normed(fluid, found, more):
    return fluid.layers.layer_norm(fluid.layers.elementwise_add(found, more), begin_norm_axis=2)
