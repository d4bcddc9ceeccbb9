"""Every model by its name, small or as large as in its paper, for training or inference.

    from tests.support.nets import zoo
    recorded = zoo.build(fluid, "resnet50", image=112)          # a training and a test program
    recorded = zoo.build(fluid, "unet", train=False, width=0.25)
    batch = zoo.draw("resnet50", numpy.random.RandomState(0), 8, image=112)

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in; `timed.fed` makes LoD tensors of
the sequences in a batch.
"""

from __future__ import annotations

import functools
from collections import namedtuple

import numpy as np

from tests.support.nets import images, joined, sequences, timed, transformer

Entry = namedtuple("Entry", "build draw optimizer small")
Entry.__doc__ = """A builder (fluid, **settings), a batch generator (random, n, **settings), the
optimizer, and small settings for quick tests."""

QUICK = {"image": 32, "width": 0.125}
"""Settings that keep every layer of an image network, with few channels."""


def build(fluid, name, train=True, optimizer=None, **settings):
    """Record a model: `timed.Recorded`, with no optimizer in `main` if `train` is false.

    Settings are its builder's: `image` (pixels per side), `width` (a factor of all channels),
    `classes` and others of image networks, `shape` of transformers. Names count from zero.
    """
    entry = MODELS[name]
    chosen = (optimizer or entry.optimizer) if train else None
    return timed.record(
        fluid, lambda module: timed.Layers(*entry.build(module, **settings)), chosen
    )


def draw(name, random, n, **settings):
    """A batch of n from a `numpy.random.RandomState`; sequences are (array, lengths).

    Settings are those passed to `build`; those that do not affect batches are ignored.
    """
    return MODELS[name].draw(random, n, **settings)


def small(name):
    """Settings with which a model is built and trained quickly."""
    return dict(MODELS[name].small)


def _images(random, n, image=32, classes=10, **_):
    """`img` float32[n, 3, image, image] and `label` int64[n, 1]."""
    pixels = random.rand(n, 3, image, image).astype(np.float32)
    return {"img": pixels, "label": random.randint(0, classes, (n, 1)).astype(np.int64)}


def _images_with_pixel_classes(random, n, image=32, classes=2, **_):
    """The same with a class for each pixel: `label` int64[n, 1, image, image]."""
    batch = _images(random, n, image, classes)
    batch["label"] = random.randint(0, classes, (n, 1, image, image)).astype(np.int64)
    return batch


def _small_model(name):
    """An entry for one of `timed.MODELS`, which have no settings."""
    return Entry(
        timed.MODELS[name],
        functools.partial(timed.draw, name),
        timed.OPTIMIZERS.get(name, timed.sgd),
        {},
    )


MODELS = {name: _small_model(name) for name in timed.MODELS}
for _name, _build in dict(images.MODELS, **joined.MODELS).items():
    MODELS[_name] = Entry(_build, _images, timed.momentum, QUICK)
MODELS.update(
    mobilenet_block=Entry(images.mobilenet_block, _images, timed.sgd, {"image": 16}),
    unet=Entry(joined.unet, _images_with_pixel_classes, timed.adam, QUICK),
    transformer_classifier=Entry(
        transformer.encoder_classifier, transformer.draw_classified, timed.adam, {}
    ),
    transformer=Entry(transformer.translator, transformer.draw_translated, timed.adam, {}),
    sentiment_stacked_lstm=Entry(
        sequences.sentiment_stacked_lstm, sequences.draw_reviews, timed.adam, {}
    ),
    tagger_gru_crf=Entry(sequences.tagger_gru_crf, sequences.draw_tagged, timed.sgd, {}),
    static_rnn_lm=Entry(sequences.static_rnn_lm, sequences.draw_states, timed.momentum, {}),
    while_power=Entry(sequences.while_power, sequences.draw_pairs, timed.sgd, {}),
)
"""Those of golden recordings first, then those of papers."""
