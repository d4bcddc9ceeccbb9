"""Small convolutional networks as graphs."""

import fluid
from fluid import layers
from fluid.contrib.slim.graph import GraphWrapper
from fluid.initializer import Constant


def attr(name: str, value: float):
    return fluid.ParamAttr(name=name, initializer=Constant(value))


def network(prefix: str) -> tuple[GraphWrapper, fluid.Program, list[str]]:
    """A graph, its startup program, and the names of two feature maps and of the logits."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(prefix):
        x = fluid.data("x", [None, 1, 6, 6])
        first = layers.conv2d(
            x, 4, 3, padding=1, act="relu", param_attr=attr(f"{prefix}w0", 0.1),
            bias_attr=attr(f"{prefix}b0", 0.0),
        )  # fmt: skip
        conv = layers.conv2d(
            first, 4, 3, padding=1, groups=4, bias_attr=False, param_attr=attr(f"{prefix}w1", 0.2)
        )
        second = layers.batch_norm(
            conv, param_attr=attr(f"{prefix}s", 1.0), bias_attr=attr(f"{prefix}o", 0.0),
            moving_mean_name=f"{prefix}m", moving_variance_name=f"{prefix}v",
        )  # fmt: skip
        pooled = layers.pool2d(second, 2, pool_stride=2)
        y = layers.fc(pooled, 3, bias_attr=False, param_attr=attr(f"{prefix}w2", 0.05))
        loss = layers.mean(y)
    graph = GraphWrapper(main, {"image": "x"}, {"loss": loss.name, "out": y.name})
    return graph, startup, [first.name, second.name, y.name]
