"""The Transformer (Vaswani et al., 2017), encoder only or with its decoder, for any fluid.

Sentences are padded; a mask of ones and zeros marks words and padding. As `timed.py`: Python 3.7,
NumPy and a fluid that is passed in.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

Shape = namedtuple("Shape", "words steps width heads depth dropout")
Shape.__doc__ = """Different words, words in a sentence, numbers a word, heads, layers, dropout."""

SMALL = Shape(words=100, steps=12, width=32, heads=4, depth=2, dropout=0.0)
BASE = Shape(words=10000, steps=64, width=512, heads=8, depth=6, dropout=0.1)
"""The paper's base model except for its vocabulary."""

FORBIDDEN = 1e9
"""Subtracted from the scores of masked words."""

SMOOTHING = 0.1
"""Label smoothing: the probability spread over all words."""


def encoder_classifier(fluid, shape=SMALL, classes=5):
    """One class per sentence, from the mean of the encoder's outputs."""
    words, mask = _sentence(fluid, "source", shape)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    encoded = encoder(fluid, words, _kept_away(fluid, mask, shape), shape)
    shown = fluid.layers.elementwise_mul(encoded, mask, axis=0)
    count = fluid.layers.reduce_sum(mask, dim=[1], keep_dim=True)
    mean = fluid.layers.elementwise_div(fluid.layers.reduce_sum(shown, dim=1), count, axis=0)
    logits = fluid.layers.fc(mean, size=classes)
    losses, chances = fluid.layers.softmax_with_cross_entropy(logits, label, return_softmax=True)
    return fluid.layers.mean(losses), chances


def translator(fluid, shape=SMALL):
    """Encoder and decoder: each next word of a translation; the loss is over words, smoothed."""
    words, mask = _sentence(fluid, "source", shape)
    target, target_mask = _sentence(fluid, "target", shape)
    following = fluid.layers.data(name="following", shape=[shape.steps, 1], dtype="int64")
    away = _kept_away(fluid, mask, shape)
    encoded = encoder(fluid, words, away, shape)
    decoded = decoder(fluid, target, encoded, away, shape)
    logits = fluid.layers.fc(decoded, size=shape.words, num_flatten_dims=2, bias_attr=False)
    loss = _smoothed(fluid, logits, following, target_mask, shape)
    return loss, fluid.layers.softmax(logits)


def encoder(fluid, words, away, shape):
    """Self-attention layers over a sentence: float32[n, steps, width]."""
    result = _embedded(fluid, words, shape, "source")
    for _ in range(shape.depth):
        result = _residual_norm(fluid, result, attention(fluid, result, result, away, shape), shape)
        result = _residual_norm(fluid, result, _feed_forward(fluid, result, shape), shape)
    return result


def decoder(fluid, words, encoded, away, shape):
    """Causal self-attention layers with cross-attention to the encoder."""
    later = np.triu(np.full((shape.steps, shape.steps), -FORBIDDEN, np.float32), 1)
    later = fluid.layers.assign(later)
    result = _embedded(fluid, words, shape, "target")
    for _ in range(shape.depth):
        result = _residual_norm(
            fluid, result, attention(fluid, result, result, later, shape), shape
        )
        result = _residual_norm(
            fluid, result, attention(fluid, result, encoded, away, shape), shape
        )
        result = _residual_norm(fluid, result, _feed_forward(fluid, result, shape), shape)
    return result


def attention(fluid, asking, asked, away, shape):
    """Multi-head attention of one sentence to another."""
    query, key, value = [
        _heads(
            fluid, fluid.layers.fc(each, shape.width, num_flatten_dims=2, bias_attr=False), shape
        )
        for each in (asking, asked, asked)
    ]
    scale = (shape.width // shape.heads) ** -0.5
    scores = fluid.layers.matmul(query, key, transpose_y=True, alpha=scale)
    weights = fluid.layers.softmax(fluid.layers.elementwise_add(scores, away))
    mixed = fluid.layers.matmul(_dropped(fluid, weights, shape), value)
    joined = fluid.layers.transpose(mixed, perm=[0, 2, 1, 3])
    joined = fluid.layers.reshape(joined, [0, 0, shape.width])
    return fluid.layers.fc(joined, size=shape.width, num_flatten_dims=2, bias_attr=False)


def _heads(fluid, found, shape):
    parts = fluid.layers.reshape(found, [0, 0, shape.heads, shape.width // shape.heads])
    return fluid.layers.transpose(parts, perm=[0, 2, 1, 3])


def _feed_forward(fluid, found, shape):
    inner = fluid.layers.fc(found, size=4 * shape.width, num_flatten_dims=2, act="relu")
    return fluid.layers.fc(_dropped(fluid, inner, shape), size=shape.width, num_flatten_dims=2)


def _residual_norm(fluid, found, more, shape):
    """The residual sum, layer-normalised per word."""
    total = fluid.layers.elementwise_add(found, _dropped(fluid, more, shape))
    return fluid.layers.layer_norm(total, begin_norm_axis=2)


def _dropped(fluid, found, shape):
    if not shape.dropout:
        return found
    return fluid.layers.dropout(found, shape.dropout, dropout_implementation="upscale_in_train")


def _embedded(fluid, words, shape, name):
    """Word embeddings plus sinusoidal position encodings."""
    vectors = fluid.embedding(
        words, size=[shape.words, shape.width], param_attr=fluid.ParamAttr(name=f"{name}_vectors")
    )
    placed = fluid.layers.add_position_encoding(vectors, alpha=shape.width**0.5, beta=1.0)
    return _dropped(fluid, placed, shape)


def _sentence(fluid, name, shape):
    """The variables of words, int64[n, steps], and of their mask, float32[n, steps]."""
    words = fluid.layers.data(name=name, shape=[shape.steps], dtype="int64")
    return words, fluid.layers.data(name=f"{name}_mask", shape=[shape.steps], dtype="float32")


def _kept_away(fluid, mask, shape):
    """The additive attention mask of padding: [n, 1, 1, steps]."""
    away = fluid.layers.scale(mask, scale=FORBIDDEN, bias=-FORBIDDEN)
    away = fluid.layers.reshape(away, [-1, 1, 1, shape.steps])
    away.stop_gradient = True
    return away


def _smoothed(fluid, logits, following, mask, shape):
    """The mean smoothed loss over non-padding words."""
    expected = fluid.layers.label_smooth(
        fluid.one_hot(fluid.layers.squeeze(following, [2]), shape.words), epsilon=SMOOTHING
    )
    losses = fluid.layers.softmax_with_cross_entropy(logits, expected, soft_label=True)
    losses = fluid.layers.elementwise_mul(fluid.layers.squeeze(losses, [2]), mask)
    total, count = fluid.layers.reduce_sum(losses), fluid.layers.reduce_sum(mask)
    return fluid.layers.elementwise_div(total, count)


# ---- what is fed --------------------------------------------------------------------------------


def draw_classified(random, n, shape=SMALL, classes=5):
    """Sentences of several lengths with their masks, and their classes."""
    words, mask = _drawn(random, n, shape)
    label = random.randint(0, classes, (n, 1)).astype(np.int64)
    return {"source": words, "source_mask": mask, "label": label}


def draw_translated(random, n, shape=SMALL):
    """Pairs of sentences with their masks, and the second ones shifted by one word."""
    words, mask = _drawn(random, n, shape)
    target, target_mask = _drawn(random, n, shape)
    following = np.roll(target, -1, axis=1)[:, :, None]
    fed = {"source": words, "source_mask": mask, "following": following}
    fed.update(target=target, target_mask=target_mask)
    return fed


def _drawn(random, n, shape):
    lengths = random.randint(shape.steps // 2, shape.steps + 1, (n, 1))
    mask = (np.arange(shape.steps) < lengths).astype(np.float32)
    words = random.randint(1, shape.words, (n, shape.steps)) * mask.astype(np.int64)
    return words.astype(np.int64), mask
