"""Samples of convolutions: every way to pad, stride, dilate, group and lay out."""

from tests.ops.samples import Sample, numbers


def convolution(images, filters, bias=False, op="conv2d", **attrs):
    """Return a sample for images and filters of these shapes."""
    inputs = {"Input": numbers(*images), "Filter": numbers(*filters, seed=1)}
    inputs |= {"Bias": numbers(filters[0], seed=2)} if bias else {}
    return Sample(op, inputs, attrs, tuple(inputs))


SAMPLES = [
    convolution((3, 2, 5, 6), (4, 2, 3, 2)),
    convolution((3, 2, 5, 6), (4, 2, 3, 3), paddings=[1, 1]),
    convolution((3, 2, 7, 6), (5, 2, 3, 4), True, strides=[2, 1], paddings=[1, 2]),
    convolution((2, 4, 7, 6), (6, 2, 3, 2), groups=2, dilations=[2, 1], paddings=[2, 0, 1, 3]),
    convolution((3, 2, 8, 9), (4, 2, 3, 2), dilations=[1, 3], strides=[3, 2]),
    convolution((3, 2, 7, 6), (4, 2, 3, 4), strides=[2, 2], padding_algorithm="SAME"),
    convolution((3, 1, 7, 8), (4, 1, 2, 2), strides=[3, 4], padding_algorithm="SAME"),
    convolution((3, 1, 6, 5), (2, 1, 4, 2), dilations=[2, 2], padding_algorithm="SAME"),
    convolution((3, 2, 5, 6), (4, 2, 2, 3), paddings=[1, 1], padding_algorithm="VALID"),
    convolution((3, 5, 6, 2), (4, 2, 3, 3), True, paddings=[1, 1], data_format="NHWC"),
    convolution((3, 5, 6, 4), (6, 2, 2, 3), strides=[2, 1], groups=2, data_format="NHWC"),
    convolution((3, 2, 5, 4), (5, 2, 1, 1), True),
    convolution((3, 2, 5, 4), (5, 2, 1, 1), data_format="AnyLayout"),
    convolution((3, 5, 4, 2), (5, 2, 1, 1), data_format="NHWC"),
    convolution((3, 2, 5, 4), (5, 2, 1, 1), strides=[2, 2]),
    convolution((3, 2, 5, 4), (5, 2, 1, 1), paddings=[1, 0]),
    convolution((3, 4, 5, 2), (6, 2, 1, 1), groups=2),
    convolution((3, 2, 5, 6), (4, 2, 5, 6)),
    convolution((5, 2, 5, 5), (5, 2, 3, 5), True, paddings=[2, 2]),
    convolution((2, 4, 5, 6), (8, 1, 3, 3), True, "depthwise_conv2d", groups=4, paddings=[1, 1]),
    convolution((3, 4, 5, 6), (4, 1, 2, 3), op="depthwise_conv2d", groups=4, strides=[2, 2]),
]
