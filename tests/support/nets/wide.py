"""Models for several devices: compute-bound ones of `timed`, and a communication-bound one.

`BATCH` is of all devices together; one thread takes some 15 ms for the large LeNet.
"""

from __future__ import annotations

import itertools

import numpy as np

from tests.support.nets import timed

FEATURES = 1000
LARGE = "_large"
"""Suffix of the name of a model with four times the batch."""

BATCH = {"lenet_bn": 256, "lenet_bn_large": 1024, "resnet_cifar8": 128, "two_layers_wide": 128}


def two_layers_wide(fluid):
    """1000 features, 1000 hidden units, one output: a million parameters, 4 MB of gradients."""
    x = fluid.layers.data(name="x", shape=[FEATURES], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    line = fluid.layers.fc(fluid.layers.fc(x, FEATURES), 1)
    return timed.Layers(fluid.layers.mean(fluid.layers.square_error_cost(line, y)), line)


def model(fluid, name):
    """Record a model with its optimizer."""
    if name == "two_layers_wide":
        return timed.record(fluid, two_layers_wide, timed.sgd)
    return timed.model(fluid, name.removesuffix(LARGE))


def drawn(name, parts=1, part=0, count=8):
    """One of `parts` equal shares of an infinite cycle of batches."""
    random = np.random.RandomState(0)
    whole = [_draw(name, random) for _ in range(count)]
    shares = [{key: np.split(rows, parts)[part] for key, rows in batch.items()} for batch in whole]
    return itertools.cycle(shares)


def _draw(name, random):
    count = BATCH[name]
    if name != "two_layers_wide":
        return timed.draw(name.removesuffix(LARGE), random, count)
    x, y = 0.05 * random.randn(count, FEATURES), random.randn(count, 1)
    return {"x": x.astype("float32"), "y": y.astype("float32")}
