"""Image networks, sequential or with shortcuts, written for any fluid.

Each builder takes the image size in pixels, a width multiplier and the number of classes, so that
the network of the paper and one small enough for a test share their code; each returns the loss and
the class probabilities. As `timed.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations

from tests.support.nets.layers import Net, image_inputs

# ---- VGG (Simonyan and Zisserman, 2014) ---------------------------------------------------------

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(fluid, image=32, width=1.0, classes=10, norm=False, dropout=True):
    """Thirteen convolutions in five groups and three fully connected layers; `norm` adds batch
    norms.
    """
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    for channels, count in VGG16:
        for _ in range(count):
            result = _vgg_conv(fluid, net, result, net.scaled(channels), norm)
        result = net.halved(result, size=2)
    for _ in range(2):
        result = fluid.layers.fc(result, size=net.scaled(4096), act="relu")
        result = fluid.layers.dropout(result, 0.5) if dropout else result
    return net.classified(result, label, classes)


def vgg16_bn(fluid, **settings):
    """The same with a batch norm after each convolution; the convolutions keep their biases."""
    return vgg16(fluid, norm=True, **settings)


def _vgg_conv(fluid, net, found, channels, norm):
    convolved = fluid.layers.conv2d(
        found, num_filters=channels, filter_size=3, padding=1, act=None if norm else "relu"
    )
    return fluid.layers.batch_norm(convolved, act="relu") if norm else convolved


# ---- Residual networks (He et al., 2015; v1.5 halves in the 3×3 convolution) --------------------


def resnet18(fluid, image=32, width=1.0, classes=10):
    """Eight blocks of two convolutions with a shortcut."""
    return _resnet(fluid, _basic, (2, 2, 2, 2), image, width, classes)


def resnet50(fluid, image=32, width=1.0, classes=10):
    """Sixteen bottleneck blocks of three convolutions with a shortcut."""
    return _resnet(fluid, _bottleneck, (3, 4, 6, 3), image, width, classes)


def _resnet(fluid, block, depths, image, width, classes):
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.halved(net.conv(result, net.scaled(64), size=7, stride=2))
    for stage, depth in enumerate(depths):
        for place in range(depth):
            stride = 2 if place == 0 and stage > 0 else 1
            result = block(fluid, net, result, net.scaled(64 * 2**stage), stride)
    return net.classified(net.means(result), label, classes)


def _basic(fluid, net, found, channels, stride):
    long = net.conv(found, channels, stride=stride)
    long = net.conv(long, channels, act=None)
    return _added(fluid, net, long, found, stride)


def _bottleneck(fluid, net, found, channels, stride):
    long = net.conv(found, channels, size=1)
    long = net.conv(long, channels, stride=stride)
    long = net.conv(long, channels * 4, size=1, act=None)
    return _added(fluid, net, long, found, stride)


def _added(fluid, net, long, found, stride):
    """The residual sum; the shortcut is a convolution if the shapes differ."""
    if found.shape[1] != long.shape[1] or stride != 1:
        found = net.conv(found, long.shape[1], size=1, stride=stride, act=None)
    return fluid.layers.elementwise_add(x=found, y=long, act="relu")


# ---- SE-ResNeXt (Xie et al., 2016; Hu et al., 2017) ---------------------------------------------

GROUPS, SQUEEZED = 32, 16


def se_resnext50(fluid, image=32, width=1.0, classes=10, dropout=True):
    """ResNet-50 with grouped convolutions and squeeze-and-excitation."""
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.halved(net.conv(result, net.scaled(64), size=7, stride=2))
    groups = max(1, int(GROUPS * width))
    for stage, depth in enumerate((3, 4, 6, 3)):
        channels = groups * max(1, net.scaled(128 * 2**stage) // groups)
        for place in range(depth):
            stride = 2 if place == 0 and stage > 0 else 1
            result = _weighed_block(fluid, net, result, channels, stride, groups)
    result = net.means(result)
    result = fluid.layers.dropout(result, 0.5) if dropout else result
    return net.classified(result, label, classes)


def _weighed_block(fluid, net, found, channels, stride, groups):
    long = net.conv(found, channels, size=1)
    long = net.conv(long, channels, stride=stride, groups=groups)
    long = net.conv(long, channels * 2, size=1, act=None)
    return _added(fluid, net, _weighed(fluid, net, long), found, stride)


def _weighed(fluid, net, found):
    """Squeeze-and-excitation: scale each channel by a gate computed from the global averages."""
    channels = found.shape[1]
    squeezed = fluid.layers.fc(net.means(found), size=max(1, channels // SQUEEZED), act="relu")
    weights = fluid.layers.fc(squeezed, size=channels, act="sigmoid")
    return fluid.layers.elementwise_mul(x=found, y=weights, axis=0)


# ---- MobileNets (Howard et al., 2017; Sandler et al., 2018) -------------------------------------

SEPARABLE = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *(((512, 1),) * 5), (1024, 2),
    (1024, 1),
)  # fmt: skip
"""Channels and stride of each separable convolution of version 1."""

INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
INVERTED += ((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and stride of each stage of version 2."""


def mobilenet_v1(fluid, image=32, width=1.0, classes=10):
    """Thirteen pairs of a depthwise and a pointwise convolution."""
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.conv(result, net.scaled(32), stride=2)
    for channels, stride in SEPARABLE:
        result = net.conv(net.depthwise(result, stride), net.scaled(channels), size=1)
    return net.classified(net.means(result), label, classes)


def mobilenet_v2(fluid, image=32, width=1.0, classes=10):
    """Seventeen inverted residual blocks."""
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.conv(result, net.scaled(32), stride=2, act="relu6")
    for factor, channels, count, stride in INVERTED:
        for place in range(count):
            step = stride if place == 0 else 1
            result = _inverted(fluid, net, result, net.scaled(channels), factor, step)
    result = net.conv(result, net.scaled(1280), size=1, act="relu6")
    return net.classified(net.means(result), label, classes)


def mobilenet_block(fluid, image=16, width=1.0, classes=10):
    """A single inverted residual block with expansion 3."""
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.conv(result, net.scaled(8), stride=2, act="relu6")
    result = _inverted(fluid, net, result, net.scaled(8), factor=3, stride=1)
    return net.classified(net.means(result), label, classes)


def _inverted(fluid, net, found, channels, factor, stride):
    wide = found
    if factor != 1:
        wide = net.conv(found, found.shape[1] * factor, size=1, act="relu6")
    narrow = net.conv(net.depthwise(wide, stride, act="relu6"), channels, size=1, act=None)
    if stride != 1 or found.shape[1] != channels:
        return narrow
    return fluid.layers.elementwise_add(x=found, y=narrow)


MODELS = {
    "vgg16": vgg16,
    "vgg16_bn": vgg16_bn,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "se_resnext50": se_resnext50,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
}
