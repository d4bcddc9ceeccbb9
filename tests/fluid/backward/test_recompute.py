"""Forward that is computed again: the same numbers, other reads, fewer bytes."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.passes.memory.schedule import peak_bytes
from fluid import layers, optimizer
from fluid.framework import Program, Variable

WIDTH = 8


def deep(check: bool, block: Any, depth: int = 9) -> tuple[Program, Program, Variable]:
    """Return programs and loss of a net of `depth` blocks, every third of them a checkpoint."""
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden, kept = layers.data("x", [WIDTH]), []
        for index in range(depth):
            hidden = block(hidden)
            kept += [hidden] if index % 3 == 2 else []
        loss = layers.mean(layers.square(layers.fc(hidden, 1) - layers.data("y", [1])))
        created = optimizer.Adam(0.01)
        if check:
            created = optimizer.RecomputeOptimizer(created)
            created._set_checkpoints(kept)
        created.minimize(loss)
    return main, startup, loss


def plain(hidden: Variable) -> Variable:
    return layers.fc(hidden, WIDTH, act="tanh")


def normed(hidden: Variable) -> Variable:
    return layers.batch_norm(plain(hidden))


def dropped(hidden: Variable) -> Variable:
    return layers.dropout(plain(hidden), 0.3, seed=5)


def train(main: Program, startup: Program, loss: Variable) -> dict[str, np.ndarray]:
    """Return the losses of three steps and all persistable variables after them."""
    executor, scope, draw = fluid.Executor(), fluid.Scope(), np.random.RandomState(0)
    losses = []
    with fluid.scope_guard(scope):
        executor.run(startup)
        for _ in range(3):
            feed = {"x": draw.rand(16, WIDTH), "y": draw.rand(16, 1)}
            feed = {name: array.astype("float32") for name, array in feed.items()}
            losses.append(executor.run(main, feed=feed, fetch_list=[loss])[0])
    state = [var.name for var in main.list_vars() if var.persistable]
    return {"losses": np.array(losses)} | {
        name: np.array(scope.find_var(name).get_tensor()) for name in state
    }


@pytest.mark.parametrize("block", [plain, normed, dropped])
def test_numbers_are_the_same(block: Any) -> None:
    want = train(*deep(False, block))
    result = train(*deep(True, block))
    assert list(result) == list(want)
    for name, array in want.items():
        np.testing.assert_array_equal(result[name], array, err_msg=name)


def test_recomputed_ops_precede_the_gradient_ops_of_their_segment() -> None:
    main, _, _ = deep(True, plain, depth=4)
    ops = main.global_block().ops
    again = [op for op in ops if any(name.endswith(".subprog_0") for name in op.writes())]
    kinds = ["mul", "elementwise_add", "tanh"] * 2 + ["mul", "elementwise_add"]
    assert [op.type for op in again] == kinds
    assert {int(op.role) for op in again} == {1}
    after = ops[ops.index(again[-1]) + 1]
    assert after.type == "tanh_grad"


@pytest.mark.parametrize(
    ("kept", "again"),
    [
        ("sum_0", {8: "mul dropout"}),
        ("product sum_1", {7: "dropout elementwise_add"}),
        ("product sum_0", {8: "dropout"}),
        ("sum_0 product", {8: "dropout"}),
        ("", {}),
    ],
)
def test_ops_are_those_of_release_1_8_5(kept: str, again: dict[int, str]) -> None:
    with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
        block = fluid.default_main_program().global_block()
        names = "x weight bias_0 bias_1 product dropped mask sum_0 sum_1 loss".split()
        shapes = [[5, 10], [10, 8], *[[5, 8]] * 7, [1]]
        made = dict(zip(names, shapes, strict=True))
        parameters = {name: made.pop(name) for name in ("x", "bias_0", "bias_1")}
        for name, shape in parameters.items():
            block.create_parameter(name=name, shape=shape, dtype="float32")
        for name, shape in made.items():
            block.create_var(name=name, shape=shape, dtype="float32")
        block.append_op("mul", {"X": "x", "Y": "weight"}, {"Out": "product"})
        block.append_op("dropout", {"X": "product"}, {"Out": "dropped", "Mask": "mask"})
        block.append_op("elementwise_add", {"X": "dropped", "Y": "bias_0"}, {"Out": "sum_0"})
        block.append_op("elementwise_add", {"X": "sum_0", "Y": "bias_1"}, {"Out": "sum_1"})
        block.append_op("mean", {"X": "sum_1"}, {"Out": "loss"})
        recomputing = optimizer.RecomputeOptimizer(optimizer.SGD(1.0))
        recomputing._set_checkpoints([block.var(name) for name in kept.split()])
        recomputing.minimize(block.var("loss"))
    wanted = "mul dropout elementwise_add elementwise_add mean fill_constant mean_grad".split()
    wanted += ["elementwise_add_grad"] * 2 + ["dropout_grad", "mul_grad", "sgd", "sgd", "sgd"]
    for place, kinds in again.items():
        wanted[place:place] = kinds.split()
    wanted[1:1] = ["seed"] if again else []
    assert [op.type for op in block.ops] == wanted


def test_recompute_lowers_peak_memory() -> None:
    def peak(check: bool) -> int:
        main, _, loss = deep(check, plain, depth=30)
        graph = to_graph(main, {"x": (1000, WIDTH), "y": (1000, 1)}, [loss.name])
        return peak_bytes(graph, 1000)

    assert peak(True) < 0.6 * peak(False)


def test_state_moves_once() -> None:
    main, _, _ = deep(True, normed)
    for name in ("batch_norm_0.w_1", "batch_norm_0.w_2"):
        assert sum(name in op.writes() for op in main.global_block().ops) == 1


def test_recompute_repeats_dropouts_with_their_seed_and_no_other_random_op() -> None:
    def noisy(hidden: Variable) -> Variable:
        noise = layers.uniform_random_batch_size_like(hidden, [1, WIDTH])
        return layers.elementwise_mul(dropped(hidden), noise)

    main, _, _ = deep(True, noisy)
    ops = main.global_block().ops
    kinds = [op.type for op in ops]
    assert kinds.count("dropout") == 18
    assert kinds.count("seed") == kinds.count("uniform_random_batch_size_like") == 9
    seeds = {op.inputs["Seed"][0] for op in ops if op.type == "dropout"}
    assert len(seeds) == 9


def test_checkpoints_must_be_set() -> None:
    with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
        loss = layers.mean(plain(layers.data("x", [WIDTH])))
        created = optimizer.RecomputeOptimizer(optimizer.SGD(0.1))
        with pytest.raises(AssertionError, match="You should call _set_checkpoints first"):
            created.minimize(loss)
        with pytest.raises(TypeError, match="'checkpoints' in _set_checkpoints must be list"):
            created._set_checkpoints(loss)
        with pytest.raises(NotImplementedError, match="load that of the optimizer it wraps"):
            created.load({})
        created._set_checkpoints([loss.name, "nobody"])
        assert [param.name for param, _ in created.minimize(loss)[1]] == ["fc_0.w_0", "fc_0.b_0"]
