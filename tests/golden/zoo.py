"""Small models and optimizers, built the way the recordings of the reference were.

A builder takes the `fluid` module and returns the loss, the outputs to fetch, and a function from
a NumPy generator and a batch size to one feed. Names in `programs/` and `train/` are
`model__optimizer[+regularizer][+clip][@schedule]`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden import zoo_text

Feed = dict[str, np.ndarray]
Model = tuple[Any, list[Any], Callable[[np.random.Generator, int], Feed]]


def fit_a_line(fluid: Any) -> Model:
    """A line through 13 features."""
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    prediction = fluid.layers.fc(input=x, size=1, act=None)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(input=prediction, label=y))
    return (
        loss,
        [prediction],
        lambda random, n: {"x": normal(random, n, 13), "y": normal(random, n, 1)},
    )


def digits_mlp(fluid: Any) -> Model:
    """Two hidden layers over 8×8 digits."""
    image, label = picture(fluid, [1, 8, 8])
    hidden = fluid.layers.fc(input=image, size=48, act="tanh")
    hidden = fluid.layers.fc(input=hidden, size=32, act="relu")
    chances = fluid.layers.fc(input=hidden, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=chances, label=label))
    accuracy = fluid.layers.accuracy(input=chances, label=label)
    return loss, [chances, accuracy], pictures(1, 8, 8)


def lenet_bn(fluid: Any) -> Model:
    """Two convolutions with poolings, and a batch norm between them."""
    image, label = picture(fluid, [1, 16, 16])
    pool = fluid.nets.simple_img_conv_pool
    features = pool(
        input=image, filter_size=5, num_filters=6, pool_size=2, pool_stride=2, act="relu"
    )
    features = fluid.layers.batch_norm(features)
    features = pool(
        input=features, filter_size=3, num_filters=8, pool_size=2, pool_stride=2, act="relu"
    )
    scores = fluid.layers.fc(input=features, size=10)
    losses, chances = fluid.layers.softmax_with_cross_entropy(scores, label, return_softmax=True)
    return fluid.layers.mean(losses), [chances], pictures(1, 16, 16)


def resnet_cifar8(fluid: Any) -> Model:
    """Two residual blocks, the second with a projection."""
    image, label = picture(fluid, [3, 16, 16])
    x = convolution(fluid, image, 8, 3, 1, "relu")
    for channels, stride in ((8, 1), (16, 2)):
        y = convolution(fluid, x, channels, 3, stride, "relu")
        y = convolution(fluid, y, channels, 3, 1, None)
        short = x if stride == 1 else convolution(fluid, x, channels, 1, stride, None)
        x = fluid.layers.elementwise_add(x=y, y=short, act="relu")
    x = fluid.layers.pool2d(x, pool_size=8, pool_type="avg", global_pooling=True)
    chances = fluid.layers.fc(input=x, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=chances, label=label))
    return loss, [chances], pictures(3, 16, 16)


MODELS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    **{model.__name__: model for model in (fit_a_line, digits_mlp, lenet_bn, resnet_cifar8)},
    **zoo_text.MODELS,
}
"""Builders by name: a loss, the outputs to fetch and, of some, what draws a feed."""


def convolution(fluid: Any, x: Any, channels: int, size: int, stride: int, act: Any) -> Any:
    """A convolution without bias, and a batch norm with the activation."""
    y = fluid.layers.conv2d(
        x,
        num_filters=channels,
        filter_size=size,
        stride=stride,
        padding=(size - 1) // 2,
        groups=1,
        bias_attr=False,
    )
    return fluid.layers.batch_norm(y, act=act)


def picture(fluid: Any, shape: list[int]) -> tuple[Any, Any]:
    """The two feed variables of an image and its label."""
    image = fluid.layers.data(name="img", shape=shape, dtype="float32")
    return image, fluid.layers.data(name="label", shape=[1], dtype="int64")


def pictures(*shape: int) -> Callable[[np.random.Generator, int], Feed]:
    """Feeds of random images with labels from 0 to 9."""

    def feed(random: np.random.Generator, n: int) -> Feed:
        images = random.random((n, *shape), np.float32)
        return {"img": images, "label": random.integers(0, 10, (n, 1))}

    return feed


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed numbers."""
    return random.standard_normal(shape, np.float32)


# ---- optimizers ---------------------------------------------------------------------------------


def schedule(fluid: Any, name: str) -> Any:
    """A learning rate: a number, or what a schedule computes."""
    layers = fluid.layers
    match name:
        case "exp":
            return layers.exponential_decay(0.1, 3, 0.5, staircase=True)
        case "poly":
            return layers.polynomial_decay(0.1, 10, 0.001)
        case "piecewise":
            return layers.piecewise_decay([2, 4], [0.1, 0.05, 0.01])
        case "noam":
            return layers.noam_decay(64, 10)
        case "cosine":
            return layers.cosine_decay(0.1, 2, 5)
        case "inverse":
            return layers.inverse_time_decay(0.1, 3, 0.5)
        case "natural":
            return layers.natural_exp_decay(0.1, 3, 0.5)
        case "warmup":
            return layers.linear_lr_warmup(0.1, 4, 0.0, 0.1)
        case _:
            return 0.05


def optimizer(fluid: Any, name: str) -> Any:
    """The optimizer of a recording's name: `momentum+l2@piecewise`."""
    kind, _, rate = name.partition("@")
    kind, *extras = kind.split("+")
    clip, decay = fluid.clip, fluid.regularizer
    created = {
        "l1": lambda: {"regularization": decay.L1Decay(1e-3)},
        "l2": lambda: {"regularization": decay.L2Decay(1e-3)},
        "clip_value": lambda: {"grad_clip": clip.GradientClipByValue(0.02)},
        "clip_norm": lambda: {"grad_clip": clip.GradientClipByNorm(0.1)},
        "clip_global": lambda: {"grad_clip": clip.GradientClipByGlobalNorm(0.5)},
    }
    arguments: dict[str, Any] = {"learning_rate": schedule(fluid, rate)}
    for extra in extras:
        arguments |= created[extra]()
    makers = {
        "sgd": fluid.optimizer.SGD,
        "momentum": lambda **rest: fluid.optimizer.Momentum(momentum=0.9, **rest),
        "nesterov": lambda **rest: fluid.optimizer.Momentum(
            momentum=0.9, use_nesterov=True, **rest
        ),
        "adam": fluid.optimizer.Adam,
        "adamax": fluid.optimizer.Adamax,
        "adagrad": fluid.optimizer.Adagrad,
        "decayed_adagrad": fluid.optimizer.DecayedAdagrad,
        "adadelta": fluid.optimizer.Adadelta,
        "rmsprop": fluid.optimizer.RMSProp,
        "rmsprop_c": lambda **rest: fluid.optimizer.RMSProp(centered=True, momentum=0.5, **rest),
        "ftrl": fluid.optimizer.Ftrl,
        "lamb": fluid.optimizer.Lamb,
        "lars": lambda **rest: fluid.optimizer.LarsMomentum(momentum=0.9, **rest),
    }
    return makers[kind](**arguments)
