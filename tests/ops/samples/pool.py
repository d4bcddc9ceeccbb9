"""Samples of pooling: windows that tile, overlap, hang over an edge or take the whole image."""

import numpy as np

from tests.ops.samples import Sample, numbers


def pooling(images, kind, ksize, **attrs):
    """Return a sample for images of this shape."""
    inputs = {"pooling_type": kind, "ksize": ksize, **attrs}
    return Sample("pool2d", {"X": numbers(*images)}, inputs, ("X",))


def volumes(images, kind, ksize, **attrs):
    """Return a sample for volumes of this shape."""
    inputs = {"pooling_type": kind, "ksize": ksize, **attrs}
    return Sample("pool3d", {"X": numbers(*images)}, inputs, X)


def located(images, ksize, op="max_pool2d_with_index", **attrs):
    """A sample of pooling that returns the indices of the maxima."""
    return Sample(op, {"X": numbers(*images)}, {"ksize": ksize, **attrs}, X)


X = ("X",)

SAMPLES = [
    sample
    for kind in ("max", "avg")
    for sample in (
        pooling((3, 2, 4, 6), kind, [2, 2], strides=[2, 2]),
        pooling((3, 2, 5, 7), kind, [2, 3], strides=[2, 3]),
        pooling((3, 2, 5, 7), kind, [1, 2], strides=[2, 3]),
        pooling((3, 2, 5, 6), kind, [3, 2]),
        pooling((3, 2, 5, 6), kind, [3, 3], strides=[2, 2], paddings=[1, 1]),
        pooling((3, 2, 6, 7), kind, [3, 2], strides=[2, 2], paddings=[0, 1, 1, 0]),
        pooling((3, 2, 6, 7), kind, [3, 3], strides=[2, 2], paddings=[1, 0], exclusive=False),
        pooling((3, 2, 6, 5), kind, [3, 2], strides=[2, 2], ceil_mode=True),
        pooling((3, 2, 6, 5), kind, [2, 2], strides=[2, 2], ceil_mode=True, exclusive=False),
        pooling((3, 2, 7, 6), kind, [3, 2], strides=[2, 3], padding_algorithm="SAME"),
        pooling((3, 2, 5, 6), kind, [2, 2], paddings=[1, 1], padding_algorithm="VALID"),
        pooling((3, 5, 6, 2), kind, [3, 2], strides=[2, 2], paddings=[1, 1], data_format="NHWC"),
        pooling((3, 2, 4, 5), kind, [-1, -1], paddings=[1, 1], global_pooling=True),
        pooling((3, 4, 5, 2), kind, [2, 2], global_pooling=True, data_format="NHWC"),
        pooling((3, 2, 4, 5), kind, [4, 5]),
        pooling((3, 2, 4, 6), kind, [2, 3], adaptive=True),
        pooling((3, 2, 5, 7), kind, [3, 4], adaptive=True),
        pooling((3, 5, 7, 2), kind, [2, 3], adaptive=True, data_format="NHWC"),
        pooling((3, 2, 5, 7), kind, [1, 1], adaptive=True),
    )
]

SAMPLES += [
    sample
    for kind in ("max", "avg")
    for sample in (
        volumes((2, 2, 4, 5, 3), kind, [2, 3, 2], strides=[2, 1, 1]),
        volumes((2, 2, 4, 5, 3), kind, [2, 2, 2], paddings=[1, 0, 1], exclusive=False),
        volumes((2, 4, 5, 3, 2), kind, [2, 2, 2], data_format="NDHWC", ceil_mode=True),
        volumes((2, 2, 4, 5, 3), kind, [2, 2, 1], adaptive=True),
        volumes((2, 2, 3, 2, 3), kind, [1, 1, 1], global_pooling=True),
        Sample("spp", {"X": numbers(2, 2, 5, 6)}, {"pyramid_height": 2, "pooling_type": kind}, X),
    )
]

SAMPLES += [
    located((2, 3, 5, 6), [2, 3], strides=[2, 2]),
    located((2, 3, 5, 6), [3, 2], paddings=[1, 1]),
    pooling((2, 2, 3, 4), "avg", [7, 5], adaptive=True),
    located((2, 3, 5, 6), [2, 4], adaptive=True),
    located((2, 3, 5, 6), [1, 1], global_pooling=True),
    located((2, 2, 3, 4, 5), [2, 2, 3], "max_pool3d_with_index", strides=[1, 2, 2]),
    located((2, 2, 3, 4, 5), [2, 1, 3], "max_pool3d_with_index", adaptive=True),
    Sample(
        "unpool",
        {
            "X": numbers(2, 3, 2, 3),
            "Indices": np.arange(36, dtype=np.int32).reshape(2, 3, 2, 3) % 24,
        },
        {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "unpooling_type": "max"},
        X,
    ),
]
