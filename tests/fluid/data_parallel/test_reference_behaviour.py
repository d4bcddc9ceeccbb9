"""What the reference's own tests of data parallelism demand, by their names, as far as no other
file here does: see `WHERE`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from tests.fluid.data_parallel.nets import NETS

pytestmark = pytest.mark.usefixtures("fresh_programs", "two_devices")

HERE = "test_reference_behaviour.py::"
WHERE = {
    "parallel_executor_mnist": "test_training.py::test_on_two_devices",
    "parallel_executor_crf": HERE + "test_crf_over_sequences",
    "parallel_executor_pg": "test_training.py::test_on_more_devices",
    "parallel_executor_test_while_train": (
        "test_two_devices.py::test_a_test_program_reads_the_variables_of_training"
    ),
    "parallel_executor_run_load_infer": HERE + "test_training_then_inference",
    "parallel_executor_fetch_feed": HERE + "test_any_variable_is_fetched",
    "parallel_executor_fetch_unmerged": "test_two_devices.py::test_values_of_each_device",
    "parallel_executor_inference_feed_partial_data": (
        "test_two_devices.py::test_fewer_rows_than_devices_where_nothing_is_trained"
    ),
    "parallel_executor_feed_persistable_var": "test_two_devices.py::test_persistable_feeds",
    "parallel_executor_drop_scope": (
        "test_two_devices.py::test_temporaries_are_dropped_on_all_devices"
    ),
    "parallel_executor_dry_run": HERE + "test_a_dry_run_on_two_devices",
    "fetch_unmerged": "test_two_devices.py::test_values_of_each_device",
    "compiled_program": "../test_compiler.py::test_it_runs_as_the_program",
    "fuse_all_reduce_pass": HERE + "test_flags_change_no_number",
    "fuse_bn_act_pass": HERE + "test_flags_change_no_number",
    "fuse_elewise_add_act_pass": HERE + "test_flags_change_no_number",
    "fuse_optimizer_pass": HERE + "test_flags_change_no_number",
    "fuse_relu_depthwise_conv_pass": HERE + "test_flags_change_no_number",
    "pass_builder": "test_two_devices.py::test_passes_are_inserted_and_removed",
    "generator_dataloader": HERE + "test_a_loader_with_a_batch_for_each_place",
    "parallel_executor_transformer": HERE + "test_flags_change_no_number",
    "collective_allreduce": "../../ops/test_collective.py::test_ranks_together",
    "collective_sendrecv": "../../runtime/collective/test_rings.py::test_collectives_that_move",
}
"""Tests of the reference (without `test_`), and the test here that demands the same."""


@pytest.mark.parametrize("name", WHERE)
def test_is_demanded_here(name: str) -> None:
    path, _, function = WHERE[name].partition("::")
    assert f"\ndef {function}(" in (Path(__file__).parent / path).read_text(encoding="utf-8")


def started() -> fluid.Scope:
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    return scope


def on_two(loss: Any, strategy: Any = None, execution: Any = None) -> Any:
    return fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy, exec_strategy=execution
    )


def losses(program: Any, loss: Any, batches: list[Any], exe: Any) -> list[float]:
    scope = started()
    results = [exe.run(program, feed=batch, fetch_list=[loss], scope=scope)[0] for batch in batches]
    return [float(np.mean(each)) for each in results]


@pytest.mark.parametrize("reduce", list(fluid.BuildStrategy.ReduceStrategy))
def test_crf_over_sequences(exe: Any, reduce: Any) -> None:
    fluid.default_startup_program().random_seed = 3
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    target = fluid.data("target", [None, 1], "int64", lod_level=1)
    hidden = fluid.layers.fc(fluid.layers.embedding(words, [30, 8], is_sparse=True), 5)
    crf = fluid.ParamAttr(name="crfw")
    loss = fluid.layers.mean(fluid.layers.linear_chain_crf(hidden, target, param_attr=crf))
    rate = fluid.layers.exponential_decay(0.05, decay_steps=2, decay_rate=0.5, staircase=True)
    fluid.optimizer.SGD(rate).minimize(loss)
    draw, batches = np.random.default_rng(0), []
    for _ in range(4):
        lengths = [draw.integers(1, 6, 4).tolist()]
        total = sum(lengths[0])
        sides = {"words": 30, "target": 5}
        batches.append(
            {
                name: fluid.create_lod_tensor(
                    draw.integers(0, high, (total, 1)), lengths, fluid.CPUPlace()
                )
                for name, high in sides.items()
            }
        )
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = reduce
    expected = losses(fluid.default_main_program(), loss, batches, exe)
    np.testing.assert_allclose(
        losses(on_two(loss, strategy), loss, batches, exe), expected, atol=1e-5
    )


def trained_net(name: str, optimizer: Any) -> tuple[Any, list[Any]]:
    make, batch = NETS[name]
    fluid.default_startup_program().random_seed = 7
    loss = make()
    optimizer.minimize(loss)
    draw = np.random.default_rng(2)
    return loss, [batch(draw, 8) for _ in range(3)]


def test_training_then_inference(exe: Any, tmp_path: Path) -> None:
    x = fluid.data("x", [None, 4])
    guess = fluid.layers.fc(x, 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.square(guess))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    rows = np.random.default_rng(0).random((6, 4), np.float32)
    program = on_two(loss)
    for _ in range(3):
        exe.run(program, feed={"x": rows}, fetch_list=[loss])
    fluid.io.save_inference_model(str(tmp_path), ["x"], [guess], exe)
    inference = fluid.default_main_program().clone(for_test=True)._prune([guess])
    (expected,) = exe.run(inference, feed={"x": rows}, fetch_list=[guess.name])
    with fluid.scope_guard(fluid.Scope()):
        loaded, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        (alone,) = exe.run(loaded, feed={feeds[0]: rows}, fetch_list=fetches)
        two = fluid.CompiledProgram(loaded).with_data_parallel()
        (together,) = exe.run(two, feed={feeds[0]: rows}, fetch_list=fetches)
    np.testing.assert_array_equal(alone, expected)
    np.testing.assert_allclose(together, expected, atol=1e-6)


def test_any_variable_is_fetched(exe: Any) -> None:
    loss, batches = trained_net("digits_mlp", fluid.optimizer.Momentum(0.1, 0.9))
    program, scope = on_two(loss), started()
    kind = fluid.core.VarDesc.VarType.LOD_TENSOR
    names = [v.name for v in fluid.default_main_program().list_vars() if v.type == kind]
    shares = [{n: rows[i::2] for n, rows in batches[0].items()} for i in range(2)]
    for feed in (batches[0], shares):
        result = exe.run(program, feed=feed, fetch_list=names, scope=scope, return_merged=False)
        assert [len(each) for each in result] == [2] * len(names)
        for name, (first, second) in zip(names, result, strict=True):
            assert first.shape == second.shape, name
            assert np.isfinite(first.astype(np.float64)).all(), name
            if name.endswith("w_0@GRAD"):
                np.testing.assert_array_equal(first, second, err_msg=name)
    for name in names[::5]:
        (alone,) = exe.run(program, feed=shares, fetch_list=[name], scope=scope)
        assert len(alone) % 2 == 0


def test_a_dry_run_on_two_devices(exe: Any) -> None:
    loss, _ = trained_net("digits_mlp", fluid.optimizer.SGD(0.1))
    execution = fluid.ExecutionStrategy()
    execution._dry_run = True
    scope = started()
    before = {name: np.array(value) for name, value in scope.arrays().items()}
    (value,) = exe.run(on_two(loss, None, execution), fetch_list=[loss], scope=scope)
    assert value.size == 0
    for name, value in scope.arrays().items():
        np.testing.assert_array_equal(value, before[name])


FLAGS = [
    {"fuse_all_reduce_ops": False},
    {"enable_sequential_execution": True},
    {"fuse_elewise_add_act_ops": True, "fuse_bn_act_ops": True},
    {"fuse_all_optimizer_ops": True, "fuse_relu_depthwise_conv": True},
    {"enable_inplace": False, "memory_optimize": True},
]


@pytest.mark.parametrize("network", ["lenet_bn", "ctr_wide_deep"])
def test_flags_change_no_number(exe: Any, network: str) -> None:
    loss, batches = trained_net(network, fluid.optimizer.Adam(0.01))
    expected = losses(on_two(loss), loss, batches, exe)
    for flags in FLAGS:
        strategy = fluid.BuildStrategy()
        for name, value in flags.items():
            setattr(strategy, name, value)
        actual = losses(on_two(loss, strategy), loss, batches, exe)
        np.testing.assert_allclose(actual, expected, atol=1e-6, err_msg=str(flags))


@pytest.mark.parametrize(("drop_last", "rows"), [(True, 8), (False, 10)])
def test_a_loader_with_a_batch_for_each_place(exe: Any, drop_last: bool, rows: int) -> None:
    """Iteration yields a list with a dict per place; one of five batches remains."""
    x = fluid.data("x", [None, 1])
    doubled = fluid.layers.scale(x, 2.0)
    loader = fluid.io.DataLoader.from_generator([x], 4, iterable=True, drop_last=drop_last)
    batches = [np.full((2, 1), number, np.float32) for number in range(5)]
    loader.set_batch_generator(lambda: ([batch] for batch in batches), fluid.cpu_places(2))
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    results = [exe.run(program, feed=feed, fetch_list=[doubled])[0] for feed in loader]
    assert sum(map(len, results)) == rows
    np.testing.assert_array_equal(np.concatenate(results), 2 * np.concatenate(batches)[:rows])
