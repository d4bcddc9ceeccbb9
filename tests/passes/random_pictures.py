"""Random networks on images, recorded with fluid: ops that a layout passes through, and ops that end it.

Convolutions of all kinds with norms and activations, pooling, concat and split of channels, padding,
resampling, reductions, per-channel and per-image weights; at the end a loss, perhaps trained.
"""

import random

import fluid

LAYERS = fluid.layers


def random_pictures(seed, train):
    """A program of a dozen layers and the variables worth fetching, the loss first."""
    rng, main, startup = random.Random(seed), fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        grown = _Pictures(rng)
        for _ in range(rng.randint(4, 12)):
            rng.choice(grown.actions)()
        loss = grown.loss()
        if train:
            fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
    return main, startup, [loss, rng.choice(grown.pool)]


class _Pictures:
    """A pool of values [N, C, H, W] that layers take from and add to."""

    def __init__(self, rng):
        self.rng = rng
        picture = LAYERS.data("picture", shape=[4, 9, 11])
        self.pool = [picture]
        self.actions = [
            *[self.convolution] * 6, *[self.norm] * 3, *[self.activation] * 2, *[self.pools] * 2,
            self.transposed, self.join, self.part, self.split, self.padding, self.residual,
            self.weighed, self.resized, self.channels, self.damped, self.permuted,
        ]  # fmt: skip

    def pick(self):
        return self.rng.choice(self.pool[-3:])

    def add(self, x):
        self.pool.append(x)

    def convolution(self):
        x, size = self.pick(), self.rng.choice([1, 1, 3, 3, 5])
        groups = self.rng.choice([1, 1, 2, x.shape[1]])
        filters = groups * self.rng.randint(1, 3) if groups < 4 else groups
        filters += filters % 2
        groups = groups if x.shape[1] % groups == 0 and filters % groups == 0 else 1
        self.add(LAYERS.conv2d(
            x, filters, size, stride=self.rng.choice([1, 1, 2]), padding=size // 2,
            dilation=self.rng.choice([1, 2]) if size == 3 and min(x.shape[2:]) > 3 else 1,
            groups=groups, act=self.rng.choice([None, "relu"]),
        ))  # fmt: skip

    def transposed(self):
        x = self.pick()
        if max(x.shape[2:]) < 12:
            self.add(LAYERS.conv2d_transpose(x, 4, filter_size=3, stride=2, padding=1))

    def norm(self):
        self.add(LAYERS.batch_norm(self.pick(), act=self.rng.choice([None, "relu", "sigmoid"])))

    def activation(self):
        x = self.pick()
        kinds = [LAYERS.tanh, LAYERS.leaky_relu, lambda v: LAYERS.scale(v, 0.5, bias=0.25)]
        kinds += [lambda v: LAYERS.prelu(v, "channel"), lambda v: LAYERS.softmax(v, axis=1)]
        self.add(self.rng.choice(kinds)(x))

    def pools(self):
        x = self.pick()
        if min(x.shape[2:]) >= 3:
            self.add(LAYERS.pool2d(
                x, 3, self.rng.choice(["max", "avg"]), pool_stride=2, pool_padding=1,
                ceil_mode=self.rng.random() < 0.5,
            ))  # fmt: skip

    def like(self, x):
        return [each for each in self.pool if each.shape[2:] == x.shape[2:]]

    def join(self):
        x = self.pick()
        self.add(LAYERS.concat([x, self.rng.choice(self.like(x))], axis=1))

    def part(self):
        x = self.pick()
        self.add(LAYERS.slice(x, axes=[1, 2], starts=[0, 0], ends=[max(2, x.shape[1] // 2), 99]))

    def split(self):
        x = self.pick()
        if x.shape[1] % 2 == 0:
            self.pool += LAYERS.split(x, 2, dim=1)

    def padding(self):
        x = self.pick()
        if self.rng.random() < 0.5:
            self.add(LAYERS.pad(x, [0, 0, 1, 0, 0, 2, 1, 1], pad_value=0.5))
        else:
            self.add(LAYERS.pad2d(x, [1, 0, 2, 1], mode="edge"))

    def residual(self):
        x = self.pick()
        same = [each for each in self.pool if each.shape == x.shape]
        self.add(LAYERS.elementwise_add(x, self.rng.choice(same)))

    def weighed(self):
        """Each channel times what a small network makes of its means."""
        x = self.pick()
        mean = LAYERS.reduce_mean(x, dim=[2, 3], keep_dim=self.rng.random() < 0.5)
        weight = LAYERS.fc(mean, x.shape[1], act="sigmoid")
        self.add(LAYERS.elementwise_mul(x, weight, axis=0))

    def resized(self):
        x = self.pick()
        if max(x.shape[2:]) < 8:
            self.add(LAYERS.resize_nearest(x, out_shape=[x.shape[2] * 2, x.shape[3] * 2]))

    def channels(self):
        x = self.pick()
        if x.shape[1] > 1:
            self.add(LAYERS.reduce_max(x, dim=[1], keep_dim=True))

    def damped(self):
        self.add(LAYERS.lrn(self.pick(), n=3))

    def permuted(self):
        """A way of one's own through other axes, and back."""
        x = LAYERS.transpose(self.pick(), [0, 3, 2, 1])
        self.add(LAYERS.transpose(LAYERS.tanh(x), [0, 3, 2, 1]))

    def loss(self):
        x = self.pool[-1]
        if self.rng.random() < 0.5:
            x = LAYERS.pool2d(x, global_pooling=True, pool_type="avg")
        return LAYERS.mean(LAYERS.square(LAYERS.fc(x, 3)))
