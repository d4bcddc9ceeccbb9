"""Persistable variables whose size changes in a run; shapes and numbers are those of 1.8.5."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from runtime.errors import NotInitialized

pytestmark = pytest.mark.usefixtures("fresh_programs")
ROWS = np.arange(8, dtype="float32").reshape(4, 2)


def collected() -> Any:
    """Rows that each run appends to."""
    x = fluid.data("x", [None, 2])
    rows = layers.create_global_var([1, 2], 0.5, "float32", persistable=True, name="rows")
    layers.assign(layers.concat([rows, x], 0), rows)
    return rows


def held(name: str = "rows") -> Any:
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def test_rows_are_collected(exe: Any) -> None:
    rows = collected()
    exe.run(fluid.default_startup_program())
    shapes = [exe.run(feed={"x": ROWS[:n]}, fetch_list=[rows])[0].shape for n in (1, 2, 3)]
    assert shapes == [(2, 2), (4, 2), (7, 2)]
    wanted = np.concatenate([[[0.5, 0.5]], ROWS[:1], ROWS[:2], ROWS[:3]])
    np.testing.assert_array_equal(held(), wanted)
    compiled = exe.counters.compiles
    exe.run(feed={"x": ROWS[:4]})
    assert (held().shape, exe.counters.compiles) == ((11, 2), compiled)


def test_a_model_trains_beside_it(exe: Any) -> None:
    rows = collected()
    loss = layers.mean(layers.fc(rows, 1, param_attr=fluid.initializer.Constant(1.0)))
    fluid.optimizer.SGD(0.5).minimize(loss)
    exe.run(fluid.default_startup_program())
    results = [exe.run(feed={"x": ROWS[:2]}, fetch_list=[loss])[0].item() for _ in range(3)]
    np.testing.assert_allclose(results, [2.3333333, 0.45, -1.9476191], rtol=1e-5)


def test_resized_state_is_fed_or_missing(exe: Any) -> None:
    rows = collected()
    with pytest.raises(NotInitialized, match="'rows' has no value"):
        exe.run(feed={"x": ROWS}, fetch_list=[rows])
    exe.run(feed={"x": ROWS, "rows": ROWS[:2]})
    assert held().shape == (6, 2)


def test_state_of_dynamic_size_is_read_as_the_scope_has_it(exe: Any) -> None:
    block = fluid.default_main_program().global_block()
    bank = block.create_var(name="bank", shape=[-1, 2], dtype="float32", persistable=True)
    total = layers.reduce_sum(bank * 2.0)
    tensor = fluid.global_scope().var("bank").get_tensor()
    for n in (2, 4):
        tensor.set(ROWS[:n], fluid.CPUPlace())
        assert exe.run(fetch_list=[total])[0] == 2 * ROWS[:n].sum()
    assert held("bank").shape == (4, 2)
    assert exe.run(feed={"bank": ROWS[:1]}, fetch_list=[total])[0] == 2
    assert held("bank").shape == (1, 2)


def test_sequences_and_arrays_are_stored_with_their_lod(exe: Any) -> None:
    x = layers.data("x", [1], lod_level=1)
    table = layers.lod_rank_table(x)
    steps = layers.control_flow.lod_tensor_to_array(x, table)
    rows = layers.control_flow.array_to_lod_tensor(steps, table)
    for variable in (x, table, steps, rows):
        variable.persistable = True
    numbers = np.arange(4, dtype="int32").reshape(4, 1)
    exe.run(feed={"x": fluid.create_lod_tensor(numbers, [[1, 3]], fluid.CPUPlace())})
    items = fluid.global_scope().find_var(steps.name).get_lod_tensor_array()
    assert [np.array(item).tolist() for item in items] == [[[1], [0]], [[2]], [[3]]]
    tensor = fluid.global_scope().find_var(rows.name).get_tensor()
    assert tensor.recursive_sequence_lengths() == [[1, 3]]
    np.testing.assert_array_equal(np.array(tensor), numbers)
