"""Samples of batch_norm: layouts, kept statistics, and a channel of one value."""

from tests.ops.samples import Sample, numbers


def normalisation(shape, channels, **attrs):
    """Return a sample for a batch of this shape."""
    inputs = {
        "X": numbers(*shape, high=3.0),
        "Scale": numbers(channels, low=0.5, high=1.5, seed=1),
        "Bias": numbers(channels, seed=2),
        "Mean": numbers(channels, seed=3),
        "Variance": numbers(channels, low=0.5, high=2.0, seed=4),
    }
    return Sample("batch_norm", inputs, attrs, ("X", "Scale", "Bias"))


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
