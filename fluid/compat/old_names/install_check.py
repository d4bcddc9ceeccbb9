"""Whether the installation works: a small network is trained on one device, then on two."""

from __future__ import annotations

import numpy as np

from fluid import layers, unique_name
from fluid.compiler import CompiledProgram
from fluid.executor import Executor, scope_guard
from fluid.framework import Program, Variable, cpu_places, recording_guard
from fluid.optimizer import SGD
from runtime.device import CPUPlace
from runtime.tensors.scope import Scope

__all__ = ["run_check"]

ROWS = 4


def run_check() -> None:
    """Train a layer for one step on one CPU device, then on two; raises any error."""
    main, startup = Program(), Program()
    with recording_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        loss = _network()
        executor = Executor(CPUPlace())
        executor.run(startup)
        feed = {"inp": np.ones((ROWS, 2), "float32")}
        executor.run(main, feed=feed, fetch_list=[loss])
        print("One device works: a layer was compiled and trained for a step.")
        two = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(2))
        executor.run(two, feed=feed, fetch_list=[loss])
        print("Two devices work: it was trained with half of the rows on each.")
        executor.close()
    print("fluid is installed and works.")


def _network() -> Variable:
    loss = layers.mean(layers.fc(layers.data("inp", [2]), 3, bias_attr=False))
    SGD(learning_rate=0.01).minimize(loss)
    return loss
