"""Image networks with branches concatenated along channels, written for any fluid.

As `images.py`: builders of an image size, a width and a number of classes.
"""

from __future__ import annotations

from tests.support.nets.layers import Net, image_inputs

# ---- Inception-v1 (Szegedy et al., 2014) --------------------------------------------------------

INCEPTIONS = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
     (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # fmt: skip
"""Channels of each module: 1×1; before 3×3, 3×3; before 5×5, 5×5; after the pooling."""

HEADS = ((1, 0), (1, 3))
"""Modules with an auxiliary classifier in the paper, as (stage, module)."""


def inception_v1(fluid, image=32, width=1.0, classes=10, heads=True, dropout=True):
    """GoogLeNet: nine modules of four branches; `heads` adds auxiliary losses, each weighted by
    0.3.
    """
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = _stem(fluid, net, result)
    early = []
    for stage, modules in enumerate(INCEPTIONS):
        for place, channels in enumerate(modules):
            result = _inception(fluid, net, result, [net.scaled(count) for count in channels])
            if heads and (stage, place) in HEADS:
                early.append(_early(fluid, net, result, label, classes, dropout))
        result = net.halved(result) if stage < 2 else net.means(result)
    result = fluid.layers.dropout(result, 0.4) if dropout else result
    loss, chances = net.classified(result, label, classes)
    return _with(fluid, loss, early), chances


def _stem(fluid, net, found):
    found = net.halved(_plain(fluid, found, net.scaled(64), size=7, stride=2))
    found = _plain(fluid, found, net.scaled(64), size=1)
    return net.halved(_plain(fluid, found, net.scaled(192), size=3))


def _plain(fluid, found, channels, size, stride=1):
    return fluid.layers.conv2d(
        found, num_filters=channels, filter_size=size, stride=stride, padding=size // 2, act="relu"
    )


def _inception(fluid, net, found, channels):
    one, before3, three, before5, five, pooled = channels
    branches = [
        _plain(fluid, found, one, size=1),
        _plain(fluid, _plain(fluid, found, before3, size=1), three, size=3),
        _plain(fluid, _plain(fluid, found, before5, size=1), five, size=5),
        _plain(fluid, net.halved(found, stride=1), pooled, size=1),
    ]
    return fluid.layers.concat(branches, axis=1)


def _early(fluid, net, found, label, classes, dropout):
    """The loss of an auxiliary classifier."""
    side = found.shape[2]
    size, stride = (5, 3) if side >= 5 else (side, 1)
    found = fluid.layers.pool2d(found, pool_size=size, pool_stride=stride, pool_type="avg")
    found = _plain(fluid, found, net.scaled(128), size=1)
    found = fluid.layers.fc(found, size=net.scaled(1024), act="relu")
    found = fluid.layers.dropout(found, 0.7) if dropout else found
    return net.classified(found, label, classes)[0]


def _with(fluid, loss, early):
    scaled = [fluid.layers.scale(each, scale=0.3) for each in early]
    return fluid.layers.sums([loss, *scaled]) if scaled else loss


# ---- DenseNet (Huang et al., 2016) --------------------------------------------------------------

DENSE, GROWTH = (6, 12, 24, 16), 32


def densenet121(fluid, image=32, width=1.0, classes=10):
    """Four dense stages, in which every layer reads all earlier layers; norms precede
    convolutions.
    """
    net = Net(fluid, width)
    result, label = image_inputs(fluid, image)
    result = net.halved(net.conv(result, net.scaled(64), size=7, stride=2))
    for stage, count in enumerate(DENSE):
        for _ in range(count):
            result = fluid.layers.concat([result, _grown(fluid, net, result)], axis=1)
        if stage < len(DENSE) - 1:
            result = _thinned(fluid, result)
    result = fluid.layers.batch_norm(result, act="relu")
    return net.classified(net.means(result), label, classes)


def _grown(fluid, net, found):
    """A dense layer: a few new channels from all existing ones."""
    growth = net.scaled(GROWTH)
    found = fluid.layers.batch_norm(found, act="relu")
    found = net.conv(found, growth * 4, size=1)
    return fluid.layers.conv2d(found, num_filters=growth, filter_size=3, padding=1, bias_attr=False)


def _thinned(fluid, found):
    """A transition layer: half the channels and half the size, which remains if it is one pixel."""
    channels = found.shape[1] // 2
    found = fluid.layers.batch_norm(found, act="relu")
    found = fluid.layers.conv2d(found, num_filters=channels, filter_size=1, bias_attr=False)
    if found.shape[2] < 2:
        return found
    return fluid.layers.pool2d(found, pool_size=2, pool_stride=2, pool_type="avg")


# ---- U-Net (Ronneberger et al., 2015) -----------------------------------------------------------


def unet(fluid, image=32, width=1.0, classes=2, depth=4):
    """U-Net: a class for every pixel; a contracting and an expanding path with skip connections.

    `image` is a multiple of 2 to the power of `depth`; labels are int64[n, 1, image, image].
    """
    net = Net(fluid, width)
    result = fluid.layers.data(name="img", shape=[3, image, image], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1, image, image], dtype="int64")
    passed = []
    for level in range(depth):
        result = _twice(net, result, 64 * 2**level)
        passed.append(result)
        result = net.halved(result, size=2)
    result = _twice(net, result, 64 * 2**depth)
    for level in reversed(range(depth)):
        result = _raised(fluid, net, result, 64 * 2**level)
        result = _twice(net, fluid.layers.concat([passed[level], result], axis=1), 64 * 2**level)
    logits = fluid.layers.conv2d(result, num_filters=classes, filter_size=1)
    losses = fluid.layers.softmax_with_cross_entropy(logits, label, axis=1)
    return fluid.layers.mean(losses), fluid.layers.softmax(logits, axis=1)


def _twice(net, found, channels):
    return net.conv(net.conv(found, net.scaled(channels)), net.scaled(channels))


def _raised(fluid, net, found, channels):
    """Upsample by 2 with a transposed convolution."""
    return fluid.layers.conv2d_transpose(
        found, num_filters=net.scaled(channels), filter_size=2, stride=2, act="relu"
    )


MODELS = {"inception_v1": inception_v1, "densenet121": densenet121, "unet": unet}
