"""Training on processes of many devices equals training on one, step for step."""

from typing import Any

import numpy as np
import pytest

import fluid
from tests.fluid.data_parallel.nets import NETS

pytestmark = pytest.mark.usefixtures("fresh_programs")
STEPS, ROWS = 5, 12
Reduces = fluid.BuildStrategy.ReduceStrategy
OPTIMIZERS = {
    "digits_mlp": lambda: fluid.optimizer.Adam(0.01),
    "lenet_bn": lambda: fluid.optimizer.Momentum(0.05, 0.9),
    "resnet_cifar8": lambda: fluid.optimizer.SGD(0.05),
    "ctr_wide_deep": lambda: fluid.optimizer.Adagrad(0.05),
}


class Training:
    """A network with its optimizer, batches, and the values after training on one device."""

    def __init__(self, name: str, exe: Any) -> None:
        make, batch = NETS[name]
        fluid.default_startup_program().random_seed = 7
        self.loss = make()
        OPTIMIZERS[name]().minimize(self.loss)
        draw = np.random.default_rng(2)
        self.exe, self.batches = exe, [batch(draw, ROWS) for _ in range(STEPS)]
        self.expected = self.run(fluid.default_main_program())

    def run(self, program: Any) -> tuple[list[float], dict[str, Any]]:
        """The mean losses of all steps, and what the scope holds then."""
        scope = fluid.Scope()
        self.exe.run(fluid.default_startup_program(), scope=scope)
        fetch = {"fetch_list": [self.loss], "scope": scope}
        results = [self.exe.run(program, feed=batch, **fetch)[0] for batch in self.batches]
        values = {name: np.array(array) for name, array in scope.arrays().items()}
        return [float(np.mean(losses)) for losses in results], values

    def on(self, devices: int, reduce: Any) -> tuple[list[float], dict[str, Any]]:
        strategy = fluid.BuildStrategy()
        strategy.reduce_strategy, strategy.sync_batch_norm = reduce, True
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            self.loss.name, strategy, places=fluid.cpu_places(devices)
        )
        return self.run(program)

    def check(self, devices: int, reduce: Any = Reduces.AllReduce) -> None:
        losses, values = self.on(devices, reduce)
        assert np.allclose(losses, self.expected[0], atol=1e-5)
        for name, value in self.expected[1].items():
            assert np.allclose(values[name], value, atol=1e-5), name


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_on_two_devices(name: str, exe: Any) -> None:
    training = Training(name, exe)
    training.check(2)
    if name != "resnet_cifar8":
        training.check(2, Reduces.Reduce)


@pytest.mark.parametrize("name", ["digits_mlp", "ctr_wide_deep"])
def test_on_one_device(name: str, exe: Any) -> None:
    Training(name, exe).check(1)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [3, 4])
def test_on_more_devices(devices: int, exe: Any) -> None:
    kept = None
    for name in OPTIMIZERS:
        for program in (fluid.default_main_program(), fluid.default_startup_program()):
            program.__init__()
        training = Training(name, exe)
        training.check(devices)
        training.check(devices, Reduces.Reduce)
        kept = kept or training
