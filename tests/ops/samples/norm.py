"""Samples of normalisation: layouts, kept statistics, a channel of one value, rows and groups."""

import numpy as np

from tests.ops.samples import Sample, numbers


def normalisation(shape, channels, op="batch_norm", **attrs):
    """Return a sample for a batch of this shape."""
    inputs = {
        "X": numbers(*shape, high=3.0),
        "Scale": numbers(channels, low=0.5, high=1.5, seed=1),
        "Bias": numbers(channels, seed=2),
        "Mean": numbers(channels, seed=3),
        "Variance": numbers(channels, low=0.5, high=2.0, seed=4),
    }
    return Sample(op, inputs, attrs, LEARNT)


def again(shape, **attrs):
    """Return a sample that normalises three channels by statistics it is given."""
    names = ("Scale", "Bias", "SavedMean", "SavedVariance")
    vectors = {slot: numbers(3, low=0.5, high=1.5, seed=i) for i, slot in enumerate(names)}
    return Sample("batch_norm_again", {"X": numbers(*shape, high=3.0), **vectors}, attrs)


def scaled(op, shape, size, given="Scale Bias", **attrs):
    """Return a sample that scales and shifts by vectors of a size, as far as they are given."""
    vectors = {"Scale": numbers(size, low=0.5, high=1.5, seed=1), "Bias": numbers(size, seed=2)}
    inputs = {"X": numbers(*shape, high=3.0), **{slot: vectors[slot] for slot in given.split()}}
    return Sample(op, inputs, attrs, tuple(inputs))


def spectral(dim, **attrs):
    """Return a sample of weights [3, 4, 2]; without steps, the singular vectors are given."""
    rows = (3, 4)[dim]
    vectors = {"U": numbers(rows, seed=1), "V": numbers(24 // rows, seed=2)}
    inputs = {"Weight": numbers(3, 4, 2), **vectors}
    return Sample("spectral_norm", inputs, {"dim": dim, **attrs}, ("Weight",))


def seen(**attrs):
    """Return a sample of data_norm; its sums have gradients that are none."""
    x = numbers(4, 6)
    x[1, 2] = x[2, 0] = 0
    inputs = {
        "X": x,
        "BatchSize": numbers(6, low=5.0, high=9.0, seed=1),
        "BatchSum": numbers(6, seed=2),
        "BatchSquareSum": numbers(6, low=4.0, high=8.0, seed=3),
    }
    if not attrs.get("enable_scale_and_shift"):
        return Sample("data_norm", inputs, attrs, () if attrs else ("X",))
    inputs |= {"scale_w": numbers(6, seed=4), "bias": numbers(6, seed=5)}
    return Sample("data_norm", inputs, attrs, ("scale_w", "bias"))


LEARNT = ("X", "Scale", "Bias")


SAMPLES = [
    normalisation((4, 3, 2, 5), 3),
    normalisation((4, 2, 5, 3), 3, data_layout="NHWC", momentum=0.5, epsilon=0.01),
    normalisation((5, 3), 3),
    normalisation((5, 3), 3, data_layout="NHWC"),
    normalisation((4, 3, 1, 1), 3),
    normalisation((4, 3, 5), 3),
    normalisation((2, 3, 2, 3, 2), 3, data_layout="AnyLayout"),
    normalisation((4, 3, 2, 5), 3, is_test=True),
    normalisation((5, 3), 3, is_test=True),
    normalisation((4, 2, 5, 3), 3, is_test=True, data_layout="NHWC"),
    normalisation((4, 3, 2, 5), 3, is_test=True, trainable_statistics=True),
    normalisation((4, 3, 2, 5), 3, use_global_stats=True),
    normalisation((1, 3), 3),
    normalisation((1, 3, 1, 1), 3, use_global_stats=True),
]

SAMPLES += [
    normalisation((4, 3, 2, 5), 3, "sync_batch_norm"),
    Sample(
        "batch_norm",
        {**normalisation((4, 3, 2), 3).inputs, "MomentumTensor": np.array([0.3], np.float32)},
        {},
        LEARNT,
    ),
    normalisation((4, 3, 2, 5), 3, "inplace_abn", activation="identity"),
    normalisation((4, 2, 5, 3), 3, "inplace_abn", activation="elu", alpha=0.7, data_layout="NHWC"),
    normalisation((4, 3, 2, 5), 3, "inplace_abn", activation="leaky_relu", alpha=0.3),
    normalisation((4, 3), 3, "inplace_abn", activation="elu", use_global_stats=True),
]

SAMPLES += [
    again((4, 3, 2, 5)),
    again((1, 3)),
    again((4, 2, 5, 3), data_layout="NHWC"),
    again((4, 3, 2, 5), frozen=True),
    again((1, 3), frozen=True),
]

SAMPLES += [
    scaled("layer_norm", (4, 6), 6),
    scaled("layer_norm", (2, 3, 4), 12, epsilon=0.001),
    scaled("layer_norm", (2, 3, 4), 4, "Scale", begin_norm_axis=2),
    scaled("layer_norm", (2, 3, 4), 4, "Bias", begin_norm_axis=2),
    scaled("layer_norm", (1, 3, 4), 4, "", begin_norm_axis=2),
    scaled("instance_norm", (2, 3, 4), 3),
    scaled("instance_norm", (2, 3, 2, 4), 3, epsilon=0.01),
    scaled("instance_norm", (2, 3, 2, 4), 3, ""),
    scaled("group_norm", (2, 4, 3, 2), 4, groups=2),
    scaled("group_norm", (2, 3, 2, 5), 5, groups=2, data_layout="NHWC"),
    scaled("group_norm", (2, 6, 3), 6, "", groups=3),
    scaled("affine_channel", (2, 3, 4, 2), 3),
    scaled("affine_channel", (2, 4, 2, 3), 3, data_layout="NHWC"),
    scaled("affine_channel", (4, 3), 3),
    Sample("lrn", {"X": numbers(2, 6, 2, 3)}, {"n": 3, "k": 1.5, "alpha": 0.1}, ("X",)),
    Sample(
        "lrn", {"X": numbers(2, 2, 3, 4)}, {"n": 5, "alpha": 0.1, "data_format": "NHWC"}, ("X",)
    ),
]

SAMPLES += [
    spectral(0, power_iters=0),
    spectral(1, power_iters=0),
    Sample("spectral_norm", spectral(0).inputs, {"power_iters": 3}),
    seen(),
    seen(slot_dim=2),
    seen(slot_dim=2, enable_scale_and_shift=True),
]
