"""Networks at the sizes that people train, and tiny ones of the same layers, for `networks.py`.

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in. There is no dropout, so that every
implementation computes the same step.
"""

from __future__ import annotations

import functools
from collections import namedtuple

import numpy as np

from tests.support.nets import bert, steps, texts, timed, transformer, zoo

Network = namedtuple("Network", "title build draw optimizer batch")
Network.__doc__ = """A title, a builder (fluid), a batch generator (random, n), an optimizer, a
batch size."""

TRANSLATED = transformer.BASE._replace(dropout=0.0)
TOKENS = 128


def network(name, quick=False):
    """A network by name, at its full size or tiny."""
    return (TINY if quick else FULL)[name]


def record(fluid, entry, fixed=False):
    """Record a network's training step: `timed.Recorded`. `fixed`: with sizes in place of -1."""

    def build(module):
        return timed.Layers(*entry.build(_FixedSizes(module, draw(entry)) if fixed else module))

    return timed.record(fluid, build, entry.optimizer)


def draw(entry):
    """The batch of a network; sequences are (array, lengths)."""
    return entry.draw(np.random.RandomState(0), entry.batch)


def has_sequences(entry):
    """Whether a network is fed sequences, whose lengths are always open."""
    return any(isinstance(value, tuple) for value in draw(entry).values())


def has_kinks(fluid, entry):
    """Whether a network has a function whose gradient jumps: relu or max pooling."""
    ops = record(fluid, entry).main.global_block().ops
    pools = [op.attr("pooling_type") for op in ops if op.type == "pool2d"]
    return "max" in pools or any(op.type in ("relu", "relu6") for op in ops)


class _Replaced:
    """A module with some of its names replaced."""

    def __init__(self, module, **names):
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name):
        return getattr(self._module, name)


class _FixedSizes(_Replaced):
    """A fluid whose `layers.data` declares the shapes of a batch."""

    def __init__(self, fluid, batch):
        def data(name, shape, dtype="float32", **_):
            return fluid.layers.data(
                name=name, shape=list(batch[name].shape), dtype=dtype, append_batch_size=False
            )

        super().__init__(fluid, layers=_Replaced(fluid.layers, data=data))


def adam(fluid):
    """Adam with a large epsilon.

    With the usual one the first update is the sign of a gradient, so that rounding decides where a
    gradient is nearly zero.
    """
    return fluid.optimizer.Adam(learning_rate=0.001, epsilon=1e-5)


def _image(name, image, batch, **settings):
    """A network of images of `image` pixels per side."""
    settings.update(image=image)
    return Network(
        f"{name}, {batch} × {image}²",
        functools.partial(zoo.MODELS[name].build, **settings),
        functools.partial(zoo.draw, name, **settings),
        timed.momentum,
        batch,
    )


def _encoder(tokens, size, batch):
    """BERT's encoder, trained to the least square distance to random vectors."""

    def build(fluid):
        result = bert.encoder(fluid, tokens, size)
        target = fluid.layers.data(name="target", shape=[tokens, size.width], dtype="float32")
        return fluid.layers.mean(fluid.layers.square_error_cost(result, target)), result

    def draw(random, n):
        target = random.randn(n, tokens, size.width).astype(np.float32)
        return dict(bert.draw(random, n, tokens, size), target=target)

    return Network(f"bert, {batch} × {tokens} tokens", build, draw, adam, batch)


def _translator(shape, batch):
    """The Transformer with its decoder."""
    return Network(
        f"transformer, {batch} × {shape.steps} words",
        functools.partial(transformer.translator, shape=shape),
        functools.partial(transformer.draw_translated, shape=shape),
        adam,
        batch,
    )


def _lstm(width, batch, count):
    """One LSTM layer over sequences of `count` steps.

    1.8.5 computes wrong gradients of `dynamic_lstm` on CPUs with AVX if the width is a multiple of
    8: only those of the output gate are not zero.
    """
    assert width % 8

    def draw(random, n):
        x, y = (random.randn(n * count, width).astype(np.float32) for _ in range(2))
        return {"x": (x, [count] * n), "y": 0.1 * y}

    build = functools.partial(steps.lstm, width=width)
    return Network(f"lstm, {batch} × {count} steps", build, draw, timed.sgd, batch)


def _wide_deep(rows, batch):
    """Wide & deep click prediction with sparse tables of `rows` rows."""
    return Network(
        f"wide_deep, {batch} clicks, {rows:,} rows",
        functools.partial(texts.ctr_wide_deep, ids=rows),
        functools.partial(texts.draw_clicks, ids=rows),
        timed.sgd,
        batch,
    )


FULL = {
    "resnet18": _image("resnet18", 224, 8, classes=1000),
    "resnet50": _image("resnet50", 224, 8, classes=1000),
    "mobilenet_v2": _image("mobilenet_v2", 224, 8, classes=1000),
    "vgg16": _image("vgg16", 224, 8, classes=1000, dropout=False),
    "bert": _encoder(TOKENS, bert.BASE, 8),
    "transformer": _translator(TRANSLATED, 16),
    "lstm": _lstm(300, 32, 50),
    "wide_deep": _wide_deep(steps.ROWS, 2048),
}
"""The networks by name, as large as they are trained."""

TINY = {
    "resnet18": _image("resnet18", 32, 4, width=0.125),
    "resnet50": _image("resnet50", 32, 4, width=0.125),
    "mobilenet_v2": _image("mobilenet_v2", 32, 4, width=0.125),
    "vgg16": _image("vgg16", 32, 4, width=0.125, dropout=False),
    "bert": _encoder(8, bert.TINY, 2),
    "transformer": _translator(transformer.SMALL, 2),
    "lstm": _lstm(12, 3, 5),
    "wide_deep": _wide_deep(50, 16),
}
"""The same networks, small enough for a test."""
