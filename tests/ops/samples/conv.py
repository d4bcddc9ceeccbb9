"""Samples of convolutions: padding, stride, dilation, groups, layouts, transposed and deformable ones."""

from tests.ops.samples import Sample, numbers


def convolution(images, filters, bias=False, op="conv2d", **attrs):
    """Return a sample for images and filters of these shapes."""
    inputs = {"Input": numbers(*images), "Filter": numbers(*filters, seed=1)}
    inputs |= {"Bias": numbers(filters[0], seed=2)} if bias else {}
    return Sample(op, inputs, attrs, tuple(inputs))


def stamping(images, filters, bias=False, op="conv2d_transpose", **attrs):
    """Return a sample of a transposed convolution."""
    depth = filters[1] * attrs.get("groups", 1)
    inputs = {"Input": numbers(*images), "Filter": numbers(*filters, seed=1)}
    inputs |= {"Bias": numbers(depth, seed=2)} if bias else {}
    return Sample(op, inputs, attrs, tuple(inputs))


def deformed(images, filters, parts, op="deformable_conv", **attrs):
    """Return a sample whose taps move by up to a place and a half, never to a whole one."""
    sizes = {**PLAIN, **attrs}
    spans = [d * (taps - 1) + 1 for d, taps in zip(sizes["dilations"], filters[2:], strict=True)]
    arguments = zip(images[2:], sizes["paddings"], spans, sizes["strides"], strict=True)
    places = [(size + 2 * edge - span) // step + 1 for size, edge, span, step in arguments]
    taps = parts * filters[2] * filters[3]
    inputs = {
        "Input": numbers(*images),
        "Offset": numbers(images[0], 2 * taps, *places, low=-1.5, high=1.5, seed=1),
        "Filter": numbers(*filters, seed=2),
    }
    if op == "deformable_conv":
        inputs["Mask"] = numbers(images[0], taps, *places, low=0.0, seed=3)
    return Sample(op, inputs, {**attrs, "deformable_groups": parts}, tuple(inputs))


PLAIN = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1]}

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
    convolution((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), op="conv3d"),
    convolution(
        (2, 2, 4, 5, 6),
        (4, 1, 2, 3, 2),
        op="conv3d",
        groups=2,
        strides=[1, 2, 1],
        paddings=[1, 0, 1],
        dilations=[2, 1, 1],
    ),
    convolution(
        (2, 3, 4, 5, 2),
        (3, 2, 2, 3, 2),
        op="conv3d",
        strides=[2, 1, 2],
        data_format="NDHWC",
        padding_algorithm="SAME",
    ),
    stamping((2, 4, 3, 4), (4, 3, 3, 2)),
    stamping((2, 4, 3, 4), (4, 3, 3, 2), True, strides=[2, 3], paddings=[1, 0], dilations=[1, 2]),
    stamping((2, 4, 3, 4), (4, 2, 3, 2), groups=2, strides=[2, 3], output_size=[8, 13]),
    stamping((2, 4, 3, 4), (4, 3, 2, 2), strides=[2, 2], output_padding=[1, 0]),
    stamping((2, 3, 4, 4), (4, 3, 3, 2), strides=[2, 2], paddings=[1, 0, 1, 1], data_format="NHWC"),
    stamping((2, 4, 3, 4), (4, 3, 3, 2), strides=[2, 1], padding_algorithm="SAME"),
    stamping((2, 4, 3, 4), (4, 1, 3, 3), op="depthwise_conv2d_transpose", groups=4),
    stamping(
        (2, 2, 3, 2, 3),
        (2, 3, 2, 3, 2),
        op="conv3d_transpose",
        strides=[1, 2, 1],
        paddings=[0, 1, 1],
    ),
    deformed((2, 4, 5, 4), (2, 2, 3, 2), 2, groups=2, paddings=[1, 1], strides=[2, 1]),
    deformed((2, 4, 5, 4), (3, 4, 2, 2), 1, op="deformable_conv_v1", dilations=[1, 2]),
    deformed((1, 6, 9, 7), (1, 6, 1, 3), 3, paddings=[0, 1], strides=[2, 2]),
]
