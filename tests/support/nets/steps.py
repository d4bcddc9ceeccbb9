"""Models whose training steps `cpu.py` times: those of `timed.py`, and larger ones.

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations

import itertools
from collections import namedtuple

import numpy as np

from tests.support.nets import images, texts, timed, transformer

Entry = namedtuple("Entry", "build draw optimizer batch")
Entry.__doc__ = """A builder (fluid), a batch generator (random, n), an optimizer, a batch size."""

ROWS = 1000000
"""Rows of each of the three embedding tables of `ctr_million`."""

STEPS, WIDTH = 50, 256
"""Steps, and numbers per step, of `lstm`."""

ENCODER = transformer.Shape(words=1000, steps=64, width=256, heads=4, depth=2, dropout=0.0)


def lenet(fluid):
    """LeNet-5 with 20 and 50 channels on 28×28 images, as in Paddle's book."""
    image = fluid.layers.data(name="img", shape=[1, 28, 28], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    result = image
    for channels in (20, 50):
        result = fluid.nets.simple_img_conv_pool(
            input=result,
            filter_size=5,
            num_filters=channels,
            pool_size=2,
            pool_stride=2,
            act="relu",
        )
    hidden = fluid.layers.fc(result, size=500, act="relu")
    losses = fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, size=10), label)
    return fluid.layers.mean(losses), hidden


def resnet18(fluid):
    """ResNet-18 on 112×112 images with 1,000 classes."""
    return images.resnet18(fluid, image=112, classes=1000)


def lstm(fluid, width=WIDTH):
    """One LSTM layer over sequences, and the mean square of its states' distance to a target."""
    steps = fluid.layers.data(name="x", shape=[width], dtype="float32", lod_level=1)
    target = fluid.layers.data(name="y", shape=[width], dtype="float32")
    gates = fluid.layers.fc(steps, size=4 * width)
    states, _ = fluid.layers.dynamic_lstm(gates, size=4 * width, use_peepholes=False)
    return fluid.layers.mean(fluid.layers.square_error_cost(states, target)), states


def ctr_million(fluid):
    """`texts.ctr_wide_deep` with a million rows in each table."""
    return texts.ctr_wide_deep(fluid, ids=ROWS)


def encoder(fluid):
    """Two layers of a Transformer's encoder over 64 words, and a class per sentence."""
    return transformer.encoder_classifier(fluid, ENCODER)


def _draw_digits(random, n):
    image = random.rand(n, 1, 28, 28).astype(np.float32)
    return {"img": image, "label": random.randint(0, 10, (n, 1)).astype(np.int64)}


def _draw_images(random, n):
    image = random.rand(n, 3, 112, 112).astype(np.float32)
    return {"img": image, "label": random.randint(0, 1000, (n, 1)).astype(np.int64)}


def _draw_states(random, n):
    x, y = (random.randn(n * STEPS, WIDTH).astype(np.float32) for _ in range(2))
    return {"x": (x, [STEPS] * n), "y": 0.1 * y}


def _draw_clicks(random, n):
    return texts.draw_clicks(random, n, ids=ROWS)


def _draw_sentences(random, n):
    return transformer.draw_classified(random, n, ENCODER)


LARGE = {
    "lenet": Entry(lenet, _draw_digits, timed.momentum, 64),
    "resnet18": Entry(resnet18, _draw_images, timed.momentum, 8),
    "lstm": Entry(lstm, _draw_states, timed.sgd, 16),
    "encoder": Entry(encoder, _draw_sentences, timed.adam, 16),
    "ctr_million": Entry(ctr_million, _draw_clicks, timed.sgd, 64),
}


def model(fluid, name):
    """Record a model with its training optimizer."""
    if name not in LARGE:
        return timed.model(fluid, name)
    entry = LARGE[name]
    return timed.record(fluid, lambda module: timed.Layers(*entry.build(module)), entry.optimizer)


def drawn(name, count=8, fluid=None):
    """An infinite cycle of `count` prepared batches, as `timed.drawn` has them."""
    if name not in LARGE:
        return timed.drawn(name, count, fluid)
    entry, random = LARGE[name], np.random.RandomState(0)
    batches = [entry.draw(random, entry.batch) for _ in range(count)]
    return itertools.cycle([timed.fed(fluid, batch) if fluid else batch for batch in batches])
