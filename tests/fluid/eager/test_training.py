"""Networks in eager mode have the losses of release 1.8.5, with one compilation per kind of step."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fluid
from fluid.eager import plans
from tests.support import eager_models

LOSSES = {
    "residual_network": [
        1.6621437072753906, 0.004764174111187458, 1.5791923999786377, 0.0047822678461670876,
        1.6183793544769287, 0.004696161486208439,
    ],
    "language_model": [2.4934561252593994, 2.47646164894104, 2.4860756397247314],
    "adversarial_networks": [
        1.3859235048294067, 0.6750386357307434, 1.3830927610397339, 0.6801540851593018,
        1.379359245300293, 0.6854773759841919,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_the_reference(name: str) -> None:
    losses = getattr(eager_models, name)(fluid)
    np.testing.assert_allclose(losses, LOSSES[name], rtol=2e-6)


def test_step_of_known_trace_compiles_nothing() -> None:
    with fluid.dygraph.guard():
        net = fluid.dygraph.Linear(3, 1)
        optimizer = fluid.optimizer.Adam(0.1, parameter_list=net.parameters())
        known = []
        for _ in range(4):
            x = fluid.dygraph.to_variable(np.ones([2, 3], "float32"))
            loss = fluid.layers.mean(net(x))
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            loss.numpy()
            known.append(plans.count())
    assert known[0] < known[1] == known[2] == known[3] or known[0] == known[3]


def test_minimize_needs_parameters() -> None:
    with fluid.dygraph.guard(), pytest.raises(AttributeError, match="parameter_list"):
        fluid.optimizer.SGD(0.1)


@pytest.mark.parametrize(
    "name", ["DGCMomentumOptimizer", "ModelAverage", "ExponentialMovingAverage"]
)
def test_optimizer_that_rewrites_programs_raises(name: str) -> None:
    arguments = (0.1, 0.9, 0) if name.startswith("DGC") else (0.1,)
    with fluid.dygraph.guard(), pytest.raises(RuntimeError, match=f"don't support {name}"):
        getattr(fluid.optimizer, name)(*arguments)


def test_parameter_without_new_gradient_is_updated_with_zero() -> None:
    with fluid.dygraph.guard():
        net = fluid.dygraph.Linear(2, 1, bias_attr=False)
        net.weight.set_value(np.zeros([2, 1], "float32"))
        optimizer = fluid.optimizer.Momentum(0.5, 0.5, parameter_list=net.parameters())
        loss = fluid.layers.reduce_sum(net(fluid.dygraph.to_variable(np.ones([1, 2], "float32"))))
        loss.backward()
        optimizer.minimize(loss)
        net.clear_gradients()
        optimizer.minimize(loss)
        assert net.weight.numpy().ravel().tolist() == [-0.75, -0.75]


def test_new_sizes_compile_nothing_after_the_second() -> None:
    table = np.arange(20, dtype="float32").reshape(5, 4)
    random = np.random.RandomState(0)
    with fluid.dygraph.guard():
        net = fluid.dygraph.Embedding([5, 4])
        net.weight.set_value(table)
        optimizer = fluid.optimizer.SGD(1.0, parameter_list=net.parameters())
        known = []
        for length in (3, 5, 2, 4, 7):
            ids = random.randint(0, 5, (2, length)).astype("int64")
            loss = fluid.layers.reduce_sum(fluid.layers.relu(net(fluid.dygraph.to_variable(ids))))
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            assert loss.numpy().item() == np.maximum(table[ids], 0).sum()
            rows = np.where(table > 0, np.bincount(ids.ravel(), minlength=5)[:, None], 0)
            table = table - rows
            known.append(plans.count())
    assert known[1:] == [known[1]] * 4


def test_threads_share_the_mode_of_the_guard_around_them() -> None:
    """Each thread trains a network of its own; ops of all are recorded in one trace."""

    def train(seed: int) -> list[float]:
        ones = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))
        x = np.random.RandomState(seed).rand(4, 3).astype("float32")
        with fluid.dygraph.guard():
            net = fluid.dygraph.Linear(3, 1, param_attr=ones, bias_attr=False)
            optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
            losses: list[float] = []
            for _ in range(5):
                loss = fluid.layers.mean(fluid.layers.square(net(fluid.dygraph.to_variable(x))))
                loss.backward()
                optimizer.minimize(loss)
                net.clear_gradients()
                losses.append(float(loss))
        return losses

    expected = [train(seed) for seed in range(4)]
    with fluid.dygraph.guard(), ThreadPoolExecutor(4) as threads:
        results = list(threads.map(train, range(4)))
    np.testing.assert_allclose(results, expected, rtol=1e-5)
