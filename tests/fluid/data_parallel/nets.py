"""Small networks for data-parallel tests: each declares its feeds and returns the loss."""

from collections.abc import Callable
from typing import Any

import numpy as np

import fluid

Batch = dict[str, Any]
Net = tuple[Callable[[], fluid.Variable], Callable[[np.random.Generator, int], Batch]]


def _labels(draw: np.random.Generator, rows: int, classes: int = 10) -> Any:
    return draw.integers(0, classes, (rows, 1))


def _pictures(channels: int, size: int) -> Callable[[np.random.Generator, int], Batch]:
    def batch(draw: np.random.Generator, rows: int) -> Batch:
        pictures = draw.random((rows, channels, size, size), np.float32)
        return {"img": pictures, "label": _labels(draw, rows)}

    return batch


def digits_mlp() -> fluid.Variable:
    image = fluid.data("img", [None, 1, 8, 8])
    hidden = fluid.layers.fc(image, 48, act="tanh")
    scores = fluid.layers.fc(fluid.layers.fc(hidden, 32, act="relu"), 10, act="softmax")
    label = fluid.data("label", [None, 1], "int64")
    return fluid.layers.mean(fluid.layers.cross_entropy(scores, label))


def lenet_bn() -> fluid.Variable:
    result = fluid.data("img", [None, 1, 16, 16])
    for filters, size in ((6, 5), (8, 3)):
        result = fluid.nets.simple_img_conv_pool(result, filters, size, 2, 2, act="relu")
        result = fluid.layers.batch_norm(result)
    label = fluid.data("label", [None, 1], "int64")
    scores = fluid.layers.fc(result, 10)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, label))


def _normed(x: fluid.Variable, filters: int, size: int, stride: int, act: Any) -> fluid.Variable:
    result = fluid.layers.conv2d(x, filters, size, stride, (size - 1) // 2, bias_attr=False)
    return fluid.layers.batch_norm(result, act=act)


def resnet_cifar8() -> fluid.Variable:
    x = _normed(fluid.data("img", [None, 3, 16, 16]), 8, 3, 1, "relu")
    for filters, stride in ((8, 1), (16, 2)):
        y = _normed(_normed(x, filters, 3, stride, "relu"), filters, 3, 1, None)
        short = x if stride == 1 else _normed(x, filters, 1, stride, None)
        x = fluid.layers.elementwise_add(y, short, act="relu")
    x = fluid.layers.pool2d(x, 8, "avg", global_pooling=True)
    label = fluid.data("label", [None, 1], "int64")
    return fluid.layers.mean(
        fluid.layers.cross_entropy(fluid.layers.fc(x, 10, act="softmax"), label)
    )


def ctr_wide_deep() -> fluid.Variable:
    dense = fluid.data("dense", [None, 6])
    ids = [fluid.data(f"c{index}", [None, 1], "int64") for index in range(3)]
    parts = [fluid.embedding(each, [50, 4], is_sparse=True) for each in ids]
    rows = [fluid.layers.reshape(part, [-1, 4]) for part in parts]
    deep = fluid.layers.fc(fluid.layers.concat([*rows, dense], 1), 32, act="relu")
    scores = fluid.layers.elementwise_add(fluid.layers.fc(deep, 2), fluid.layers.fc(dense, 2))
    label = fluid.data("label", [None, 1], "int64")
    loss = fluid.layers.cross_entropy(fluid.layers.softmax(scores), label)
    return fluid.layers.mean(loss)


def clicks(draw: np.random.Generator, rows: int) -> Batch:
    ids = {f"c{index}": draw.integers(0, 50, (rows, 1)) for index in range(3)}
    return {**ids, "dense": draw.random((rows, 6), np.float32), "label": _labels(draw, rows, 2)}


NETS: dict[str, Net] = {
    "digits_mlp": (digits_mlp, _pictures(1, 8)),
    "lenet_bn": (lenet_bn, _pictures(1, 16)),
    "resnet_cifar8": (resnet_cifar8, _pictures(3, 16)),
    "ctr_wide_deep": (ctr_wide_deep, clicks),
}
