"""The layers of image networks, for `images.py` and `joined.py`.

As `timed.py`: Python 3.7, NumPy and a fluid that is passed in.
"""

from __future__ import annotations


class Net:
    """A fluid's layers with the defaults of these networks: widths, norms, same padding.

    `width` multiplies every number of channels, with a minimum of `least`.
    """

    def __init__(self, fluid, width=1.0, least=4):
        self.layers, self.width, self.least = fluid.layers, width, least

    def scaled(self, channels):
        """Channels scaled by this net's width."""
        return max(self.least, round(channels * self.width))

    def conv(self, found, channels, size=3, stride=1, groups=1, act="relu"):
        """A convolution without a bias and a batch norm; `channels` are not scaled."""
        convolved = self.layers.conv2d(
            found, num_filters=channels, filter_size=size, stride=stride, padding=size // 2,
            groups=groups, bias_attr=False,
        )  # fmt: skip
        return self.layers.batch_norm(convolved, act=act)

    def depthwise(self, found, stride=1, act="relu"):
        """A depthwise convolution, with `depthwise_conv2d`, and a batch norm."""
        channels = found.shape[1]
        convolved = self.layers.conv2d(
            found, num_filters=channels, filter_size=3, stride=stride, padding=1,
            groups=channels, use_cudnn=False, bias_attr=False,
        )  # fmt: skip
        return self.layers.batch_norm(convolved, act=act)

    def halved(self, found, size=3, stride=2):
        """Max pooling."""
        return self.layers.pool2d(
            found, pool_size=size, pool_stride=stride, pool_padding=size // 2 if size > 2 else 0,
            pool_type="max",
        )  # fmt: skip

    def means(self, found):
        """Global average pooling."""
        return self.layers.pool2d(found, pool_type="avg", global_pooling=True)

    def classified(self, found, label, classes):
        """The mean cross entropy and the probabilities, from one fully connected layer."""
        logits = self.layers.fc(found, size=classes)
        losses, chances = self.layers.softmax_with_cross_entropy(logits, label, return_softmax=True)
        return self.layers.mean(losses), chances


def image_inputs(fluid, image):
    """The variables of square colour images, `image` pixels per side, and of their classes."""
    picture = fluid.layers.data(name="img", shape=[3, image, image], dtype="float32")
    return picture, fluid.layers.data(name="label", shape=[1], dtype="int64")
