"""`multi_batch_merge_pass`: several passes over a batch for each update."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_parallel.batch_merge import merge_batches
from fluid.data_parallel.build import build

X = np.arange(8, dtype="float32").reshape(4, 2)


def trained(repeats: int) -> tuple[Any, list[str]]:
    """The last loss of a training, and the types of ops of its program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        hidden = fluid.layers.fc(x, 3, param_attr=fluid.initializer.Constant(0.1))
        loss = fluid.layers.mean(hidden * hidden)
        rate = fluid.layers.piecewise_decay([2], [0.01, 0.001])
        fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    strategy = fluid.BuildStrategy()
    merging = strategy._finalize_strategy_and_create_passes().insert_pass(
        0, "multi_batch_merge_pass"
    )
    merging.set("num_repeats", repeats)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, strategy, places=fluid.cpu_places(1)
    )
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    steps = [executor.run(compiled, {"x": X}, [loss], scope=scope)[0] for _ in range(4)]
    ops = build(main, strategy, 1).programs[0].global_block().ops
    return steps[-1], [op.type for op in ops]


def test_gradients_of_repeated_passes_are_averaged() -> None:
    once, kinds = trained(1)
    merged, repeated = trained(3)
    np.testing.assert_allclose(merged, once, rtol=1e-6)
    assert [kinds.count(kind) for kind in ("mul_grad", "momentum", "increment")] == [1, 2, 1]
    assert [repeated.count(kind) for kind in ("mul_grad", "momentum", "increment")] == [3, 2, 1]


@pytest.mark.usefixtures("fresh_programs")
def test_a_program_with_a_loader_cannot_repeat() -> None:
    x = fluid.data("x", [None, 2])
    fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
    with pytest.raises(NotImplementedError, match="the program reads from a loader"):
        merge_batches(fluid.default_main_program(), 2)
