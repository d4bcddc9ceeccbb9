import numpy as np
import paddle.fluid as fluid


def network():
    x = fluid.data("x", [None, 4], "float32")
    y = fluid.data("y", [None, 1], "float32")
    start = fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(np.ones((4, 1), "f") / 4))
    predicted = fluid.layers.fc(x, 1, param_attr=start, bias_attr=fluid.ParamAttr("b"))
    return x, y, fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))


def batch(seed):
    draws = np.random.RandomState(seed)
    x = draws.randn(16, 4).astype("float32")
    return x, (x.dot([1, -2, 3, 0.5]) + 0.7).astype("float32")[:, None]
