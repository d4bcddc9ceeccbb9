"""What trainers and servers compute together is what one process computes on the whole batch."""

import numpy as np
import pytest

import fluid
from tests.fluid.transpiler.distribute.server_job import Job, train_alone

FEATURES, WIDTH = 128, 160
"""The weight has 20480 elements: two blocks of at least 8192."""

OPTIMIZERS = {
    "sgd": lambda **k: fluid.optimizer.SGD(0.1, **k),
    "momentum_l2": lambda **k: fluid.optimizer.Momentum(
        0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.01), **k
    ),
    "adam": lambda **k: fluid.optimizer.Adam(0.01, **k),
    "adamax": lambda **k: fluid.optimizer.Adamax(0.01, **k),
    "adagrad": lambda **k: fluid.optimizer.Adagrad(0.1, epsilon=1e-2, **k),
    "decayed_adagrad": lambda **k: fluid.optimizer.DecayedAdagrad(0.1, epsilon=1e-2, **k),
    "adadelta": lambda **k: fluid.optimizer.Adadelta(0.1, **k),
    "rmsprop_centered": lambda **k: fluid.optimizer.RMSProp(0.01, centered=True, **k),
    "ftrl": lambda **k: fluid.optimizer.Ftrl(0.1, **k),
    "lamb": lambda **k: fluid.optimizer.Lamb(0.01, **k),
    "lars": lambda **k: fluid.optimizer.LarsMomentum(0.1, 0.9, **k),
    "piecewise": lambda **k: fluid.optimizer.SGD(
        fluid.layers.piecewise_decay([1, 2], [0.2, 0.1, 0.05]), **k
    ),
    "exponential": lambda **k: fluid.optimizer.SGD(
        fluid.layers.exponential_decay(0.2, 1, 0.5), **k
    ),
}
CLIPS = {
    "value": lambda: fluid.clip.GradientClipByValue(0.01),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.05),
    "global_norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.05),
}


def network(optimizer, clip=None):
    """Return what builds a two-layer regression, the first weight of which is cut."""

    def build():
        x = fluid.layers.data("x", [FEATURES])
        y = fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, WIDTH, act="tanh", param_attr=fluid.ParamAttr(name="w"))
        slow = fluid.ParamAttr(name="v", learning_rate=0.5)
        error = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1, param_attr=slow), y)
        loss = fluid.layers.mean(error)
        OPTIMIZERS[optimizer](grad_clip=CLIPS[clip]() if clip else None).minimize(loss)
        return loss

    return build


def batches(count=3, rows=6):
    random = np.random.RandomState(3)
    return [
        {
            "x": random.randn(rows, FEATURES).astype("float32"),
            "y": random.randn(rows, 1).astype("float32"),
        }
        for _ in range(count)
    ]


def agree(build, trainers=2):
    together, alone = Job(build, trainers).train(batches()), train_alone(build, batches())
    for name, value in alone.items():
        apart = np.linalg.norm(together[name] - value) / np.linalg.norm(value)
        assert apart <= 5e-6, f"{name}: {apart}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_trainers_equal_one_process(optimizer):
    agree(network(optimizer))


@pytest.mark.parametrize("clip", CLIPS)
def test_clipping_is_of_the_mean_gradient(clip):
    agree(network("momentum_l2", clip))


@pytest.mark.parametrize("trainers", [1, 3])
def test_any_number_of_trainers(trainers):
    agree(network("adam"), trainers)
