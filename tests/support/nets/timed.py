"""The models that the benchmarks compile and train, written for any fluid.

`fluid` is passed in, so that the same code records the same program in this package and in Paddle
1.8.5; therefore this file keeps to Python 3.7 and imports nothing but NumPy. The first four models
are those whose training steps were measured on the reference; `synthetic` has any length.
"""

from __future__ import annotations

import itertools
from collections import namedtuple

import numpy as np

from tests.support.nets import texts

Layers = namedtuple("Layers", "loss output")
Layers.__doc__ = """The result of a builder: the loss, and the prediction."""

Recorded = namedtuple("Recorded", "main startup test loss output")
Recorded.__doc__ = """A model in separate programs: training, initialisation and inference."""


def record(fluid, build, optimizer=None):
    """Record a model with its optimizer (None: forward only); names count from zero."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        layers = build(fluid)
        test = main.clone(for_test=True)
        if optimizer is not None:
            optimizer(fluid).minimize(layers.loss)
    return Recorded(main, startup, test, *layers)


def model(fluid, name):
    """Record one of `MODELS` with its training optimizer."""
    return record(fluid, MODELS[name], OPTIMIZERS.get(name, sgd))


def sgd(fluid):
    """SGD."""
    return fluid.optimizer.SGD(learning_rate=0.01)


def momentum(fluid):
    """SGD with momentum 0.9."""
    return fluid.optimizer.Momentum(learning_rate=0.01, momentum=0.9)


def adam(fluid):
    """Adam with its defaults."""
    return fluid.optimizer.Adam(learning_rate=0.001)


OPTIMIZERS = {
    "digits_mlp": momentum,
    "lenet_bn": momentum,
    "resnet_cifar8": momentum,
    "transformer_encoder": adam,
}
"""The optimizer of a model; SGD if not listed."""


def fed(fluid, batch):
    """A batch in the form that any fluid accepts: sequences as LoD tensors."""
    place = fluid.CPUPlace()
    return {
        name: fluid.create_lod_tensor(value[0], [value[1]], place)
        if isinstance(value, tuple)
        else value
        for name, value in batch.items()
    }


# ---- four small models --------------------------------------------------------------------------


def fit_a_line(fluid):
    """Linear regression on 13 features."""
    features = fluid.layers.data(name="x", shape=[13], dtype="float32")
    target = fluid.layers.data(name="y", shape=[1], dtype="float32")
    line = fluid.layers.fc(input=features, size=1)
    return Layers(_squared_error(fluid, line, target), line)


def digits_mlp(fluid):
    """Three fully connected layers on 8×8 digits."""
    image, label = _image(fluid, "digits_mlp")
    hidden = fluid.layers.fc(input=image, size=48, act="tanh")
    hidden = fluid.layers.fc(input=hidden, size=32, act="relu")
    classes = fluid.layers.fc(input=hidden, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=classes, label=label))
    return Layers(loss, classes)


def lenet_bn(fluid):
    """Two convolutions with pooling and a batch norm between them, on 16×16 images."""
    image, label = _image(fluid, "lenet_bn")
    result = _convolved_and_pooled(fluid, image, channels=6, size=5)
    result = fluid.layers.batch_norm(result)
    result = _convolved_and_pooled(fluid, result, channels=8, size=3)
    logits = fluid.layers.fc(input=result, size=10)
    losses, classes = fluid.layers.softmax_with_cross_entropy(logits, label, return_softmax=True)
    return Layers(fluid.layers.mean(losses), classes)


def resnet_cifar8(fluid):
    """A residual network of seven convolutions on 3×16×16 images."""
    image, label = _image(fluid, "resnet_cifar8")
    result = _normed(fluid, image, channels=8)
    result = _residual(fluid, result, channels=8, stride=1)
    result = _residual(fluid, result, channels=16, stride=2)
    result = fluid.layers.pool2d(result, pool_size=8, pool_type="avg", global_pooling=True)
    classes = fluid.layers.fc(input=result, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=classes, label=label))
    return Layers(loss, classes)


def _text(build):
    """Adapt a builder of `texts` to this file."""
    return lambda fluid: Layers(*build(fluid))


MODELS = {
    "fit_a_line": fit_a_line,
    "digits_mlp": digits_mlp,
    "lenet_bn": lenet_bn,
    "resnet_cifar8": resnet_cifar8,
    "word2vec": _text(texts.word2vec),
    "ctr_wide_deep": _text(texts.ctr_wide_deep),
    "sentiment_conv": _text(texts.sentiment_conv),
    "transformer_encoder": _text(texts.transformer_encoder),
}


def _convolved_and_pooled(fluid, found, channels, size):
    return fluid.nets.simple_img_conv_pool(
        input=found, filter_size=size, num_filters=channels, pool_size=2, pool_stride=2, act="relu"
    )


def _normed(fluid, found, channels, size=3, stride=1, act="relu"):
    """A convolution with same padding, and a batch norm."""
    convolved = fluid.layers.conv2d(
        found, num_filters=channels, filter_size=size, stride=stride, padding=size // 2,
        bias_attr=False,
    )  # fmt: skip
    return fluid.layers.batch_norm(convolved, act=act)


def _residual(fluid, found, channels, stride):
    """Two convolutions with a shortcut, which is a convolution if the image shrinks."""
    long = _normed(fluid, found, channels, stride=stride)
    long = _normed(fluid, long, channels, act=None)
    short = found
    if stride != 1:
        short = _normed(fluid, found, channels, size=1, stride=stride, act=None)
    return fluid.layers.elementwise_add(x=long, y=short, act="relu")


# ---- a program of any length --------------------------------------------------------------------

TOWERS = 4
WIDTH = 16
OPS_PER_BLOCK = 21


def synthetic(ops):
    """A builder whose program trained with `sgd` has about `ops` ops.

    Four towers of residual blocks (`mul`, biases, `relu`, a scaled gate), joined at the end, so
    that the graph has several long paths, values with two and three readers, gradient sums, and an
    activation kept for backward for nearly every op.
    """
    blocks = max(1, round(ops / OPS_PER_BLOCK / TOWERS))

    def build(fluid):
        features = fluid.layers.data(name="x", shape=[WIDTH], dtype="float32")
        target = fluid.layers.data(name="y", shape=[1], dtype="float32")
        tops = [_tower(fluid, features, blocks) for _ in range(TOWERS)]
        joined = fluid.layers.sums(tops)
        line = fluid.layers.fc(input=joined, size=1)
        return Layers(_squared_error(fluid, line, target), line)

    return build


def _tower(fluid, found, blocks):
    """Blocks of eight forward ops; backward adds nine and the optimizer four."""
    for _ in range(blocks):
        hidden = fluid.layers.fc(input=found, size=WIDTH, act="relu")
        gated = fluid.layers.elementwise_mul(hidden, fluid.layers.scale(found, scale=0.5))
        found = fluid.layers.elementwise_add(fluid.layers.fc(input=gated, size=WIDTH), found)
    return found


# ---- what is fed --------------------------------------------------------------------------------

BATCH = {"fit_a_line": 20, "digits_mlp": 64, "lenet_bn": 64, "resnet_cifar8": 32}
BATCH.update(word2vec=32, ctr_wide_deep=64, sentiment_conv=16, transformer_encoder=16)
"""The training batch size of a model."""

_TEXT = {
    "word2vec": texts.draw_words,
    "ctr_wide_deep": texts.draw_clicks,
    "sentiment_conv": texts.draw_sentences,
    "transformer_encoder": texts.draw_steps,
}

_PICTURE = {"digits_mlp": (1, 8, 8), "lenet_bn": (1, 16, 16), "resnet_cifar8": (3, 16, 16)}


def draw(name, random, n):
    """A batch of n for a model, from a `numpy.random.RandomState`.

    `x` float32[n, 13] and `y` float32[n, 1], or `img` float32[n, …] and `label` int64[n, 1], or
    what `texts` draws; sequences are (array, lengths).
    """
    if name in _TEXT:
        return _TEXT[name](random, n)
    if name == "fit_a_line":
        x, y = random.randn(n, 13), random.randn(n, 1)
        return {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    image = random.rand(n, *_PICTURE[name]).astype(np.float32)
    return {"img": image, "label": random.randint(0, 10, (n, 1)).astype(np.int64)}


def drawn(name, count=8, fluid=None):
    """An infinite cycle of `count` prepared batches of a model's usual size.

    With a `fluid` they are in the form it accepts.
    """
    random = np.random.RandomState(0)
    batches = [draw(name, random, BATCH[name]) for _ in range(count)]
    return itertools.cycle([fed(fluid, batch) if fluid else batch for batch in batches])


def _image(fluid, name):
    """The variables of an image and its class."""
    image = fluid.layers.data(name="img", shape=list(_PICTURE[name]), dtype="float32")
    return image, fluid.layers.data(name="label", shape=[1], dtype="int64")


def _squared_error(fluid, prediction, target):
    error = fluid.layers.square_error_cost(input=prediction, label=target)
    return fluid.layers.mean(error)
