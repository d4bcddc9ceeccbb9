"""Contributed layers of one op: shapes, parameters, numbers and gradients."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid.contrib import layers as more

layers = fluid.layers


@pytest.fixture(autouse=True)
def programs() -> Any:
    """Yield a main program of its own."""
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield main


def sequences(rows: Any, *lengths: int) -> Any:
    """Return a feed with a LoD."""
    return fluid.create_lod_tensor(rows, [list(lengths)], fluid.CPUPlace())


def run(main: Any, feed: dict[str, Any], *fetches: Any) -> list[Any]:
    """Run a program from its startup program on."""
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(main, feed, list(fetches), return_numpy=False)]


@pytest.mark.parametrize("names", ["relu,elementwise_add", ["relu", "elementwise_add"]])
def test_an_activation_of_a_sum(programs: Any, names: Any) -> None:
    x, y = layers.data("x", [3]), layers.data("y", [3])
    inputs = {"x": np.array([[1, -2, 3]], "f4"), "y": np.array([[1, 1, -5]], "f4")}
    (result,) = run(programs, inputs, more.fused_elemwise_activation(x, y, names))
    np.testing.assert_array_equal(result, [[2, 0, 0]])
    with pytest.raises(ValueError, match="two names"):
        more.fused_elemwise_activation(x, y, "relu")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_of_a_table_are_added_and_trained(programs: Any, is_sparse: bool) -> None:
    ids = layers.data("ids", [1], dtype="int64", lod_level=1)
    ones = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(1.0))
    out = more.fused_embedding_seq_pool(ids, [5, 2], is_sparse, padding_idx=-1, param_attr=ones)
    fluid.optimizer.SGD(0.5).minimize(layers.reduce_sum(out))
    feed = {"ids": sequences(np.array([[0], [4], [3], [3]]), 2, 2)}
    (result,) = run(programs, feed, out)
    np.testing.assert_array_equal(result, [[1, 1], [2, 2]])
    table = np.array(fluid.global_scope().find_var("table").get_tensor())
    np.testing.assert_array_equal(table[:, 0], [0.5, 1, 1, 0, 1])


def test_a_matching_model_learns(programs: Any) -> None:
    x, y = (layers.data(name, [3], lod_level=1) for name in "xy")
    matched, product = more.match_matrix_tensor(x, y, 2, act="tanh")
    convolved = more.var_conv_2d(matched, x, y, 2, 4, [3, 3], act="relu")
    pooled = more.sequence_topk_avg_pooling(convolved, x, y, [1, 2], 4)
    loss = layers.mean(layers.sequence_pool(pooled, "sum"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    draw = np.random.default_rng(0)
    rows = [draw.normal(size=(5, 3)).astype("f4") for _ in "xy"]
    feed = {"x": sequences(rows[0], 2, 3), "y": sequences(rows[1], 4, 1)}
    first = run(programs, feed, loss, pooled, product, matched)
    assert [value.shape for value in first] == [(1,), (5, 8), (30, 1), (22, 1)]
    (later,) = fluid.Executor(fluid.CPUPlace()).run(programs, feed, [loss])
    assert later[0] < first[0][0]


def test_a_convolution_over_trees(programs: Any) -> None:
    nodes, edges = layers.data("nodes", [5, 3]), layers.data("edges", [4, 2], dtype="int32")
    out = more.tree_conv(nodes, edges, 6, num_filters=2)
    assert tuple(out.shape) == (-1, 5, 6, 2)
    tree = np.array([[[1, 2], [1, 3], [3, 4], [0, 0]]], "int32")
    feed = {"nodes": np.ones((1, 5, 3), "f4"), "edges": tree}
    assert run(programs, feed, out)[0].shape == (1, 5, 6, 2)
