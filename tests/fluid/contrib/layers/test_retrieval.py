"""Contributed layers for retrieval and ranking: numbers, drawn samples, tables that are updated."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid.contrib import layers as more

layers = fluid.layers

NODES = [
    [0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6],
    [0, 2, 1, 0, 0], [1, 2, 1, 0, 0], [2, 2, 2, 0, 0], [3, 2, 2, 0, 0],
]  # fmt: skip
WAYS, FLAT = [[1, 3], [1, 4], [2, 5], [2, 6]], [[1], [2], [3], [4], [5], [6]]
WORDS = np.array([[1], [2], [3], [7], [5]], np.int32)


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


def run(main: Any, feed: dict[str, Any], *fetches: Any) -> list[Any]:
    """Run a program from its startup program on."""
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(main, feed, list(fetches), return_numpy=False)]


def table(rows: Any) -> Any:
    """Return the attributes of a parameter that starts with given rows."""
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(np.array(rows)))


def test_children_of_nodes(programs: Any) -> None:
    x = fluid.data("x", [None, 1], "int32", lod_level=1)
    child, leaf = more.tdm_child(x, 7, 2, param_attr=table(NODES))
    assert (child.dtype, child.stop_gradient) == (fluid.core.VarDesc.VarType.INT32, True)
    result = run(programs, {"x": np.array([[2], [3], [1]], np.int32)}, child, leaf)
    assert result[0].tolist() == [[[5, 6]], [[0, 0]], [[3, 4]]]
    assert result[1].tolist() == [[[1, 1]], [[0, 0]], [[0, 1]]]


def test_a_node_that_the_tree_does_not_have(programs: Any) -> None:
    x = fluid.data("x", [None, 1], "int64")
    child, _ = more.tdm_child(x, 7, 2, param_attr=table(NODES))
    with pytest.raises(
        ValueError, match="X has 7, which is not a row of TreeInfo: expected 0 to 6"
    ):
        run(programs, {"x": np.array([[7]])}, child)


def sampled(main: Any, drawn: list[int], rows: int = 4, **options: Any) -> list[Any]:
    """Return samples, labels and masks of all leaves, by layer."""
    x = fluid.data("x", [None, 1], "int32")
    ways, nodes = table(WAYS), table(FLAT)
    created = more.tdm_sampler(x, drawn, [2, 4], 4, ways, nodes, **options)
    leaves = np.resize(np.arange(4), (rows, 1)).astype(np.int32)
    result = run(main, {"x": leaves}, *(each for kind in created for each in kind))
    count = len(result) // 3
    return [result[at : at + count] for at in range(0, len(result), count)]


def test_tree_paths_begin_at_the_root(programs: Any) -> None:
    out, labels, masks = sampled(programs, [1, 2])
    assert [each.shape for each in out] == [(4, 2, 1), (4, 3, 1)]
    assert np.concatenate([each[:, :1, 0] for each in out], axis=1).tolist() == WAYS
    assert labels[1][:, :, 0].tolist() == [[1, 0, 0]] * 4
    assert all(mask.all() for mask in masks)


def test_negatives_are_distinct_and_of_one_layer(programs: Any) -> None:
    out, labels, _ = sampled(programs, [1, 2], rows=400, output_positive=False, seed=3)
    assert (out[0][:, 0, 0] == 3 - np.resize([1, 1, 2, 2], 400)).all()
    below = out[1][:, :, 0]
    assert ((below >= 3) & (below <= 6)).all()
    assert (below != np.resize([3, 4, 5, 6], 400)[:, None]).all()
    assert (below[:, 0] != below[:, 1]).all()
    assert np.bincount(below.reshape(-1))[3:].min() > 150
    assert not any(label.any() for label in labels)


def test_all_layers_side_by_side(programs: Any) -> None:
    x = fluid.data("x", [None, 1], "int32")
    created = more.tdm_sampler(
        x, [0, 0], [2, 4], 4, table(WAYS), table(FLAT), output_list=False, dtype="int64"
    )
    result = run(programs, {"x": np.array([[3], [0]], np.int32)}, *created)
    assert result[0].tolist() == [[2, 6], [1, 3]]
    assert result[0].dtype == np.int64


def test_short_tree_paths_are_masked(programs: Any) -> None:
    x = fluid.data("x", [None, 1], "int32")
    ways, nodes = table([[1, 3], [2, 0]]), table([[1], [2], [3], [4]])
    out, labels, mask = more.tdm_sampler(x, [1, 1], [2, 2], 2, ways, nodes, output_list=False)
    result = run(programs, {"x": np.array([[1]], np.int32)}, out, labels, mask)
    assert [each.tolist() for each in result] == [[[2, 1, 0, 0]], [[1, 0, 0, 0]], [[1, 1, 0, 0]]]


@pytest.mark.parametrize(
    ("drawn", "nodes", "leaves", "kind"),
    [
        ([1], [2, 4], 4, ValueError),
        ([2, 1], [2, 4], 4, ValueError),
        ([1, 1], [2, 4], 6, AssertionError),
    ],
)
def test_layers_that_do_not_fit(drawn: Any, nodes: Any, leaves: int, kind: Any) -> None:
    x = fluid.data("x", [None, 1], "int32")
    with pytest.raises(kind):
        more.tdm_sampler(x, drawn, nodes, leaves)
    with pytest.raises(TypeError):
        more.tdm_sampler(x, [1, 1], [2, 4], 4, dtype="float32")


def test_matrices_chosen_by_ranks(programs: Any) -> None:
    x = fluid.data("x", [None, 2])
    ranks = fluid.data("ranks", [None, 5], "int32")
    param = fluid.ParamAttr("p", initializer=fluid.initializer.Constant(1.0))
    out = more.rank_attention(x, ranks, [8, 3], param, max_rank=2)
    fluid.optimizer.SGD(0.5).minimize(layers.reduce_sum(out))
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    chosen = np.array([[1, 1, 0, 2, 2], [2, 0, 0, 2, 1], [0, 1, 0, 2, 2]], np.int32)
    (result,) = run(programs, {"x": rows, "ranks": chosen}, out)
    assert result.tolist() == [[14.0] * 3, [7.0] * 3, [0.0] * 3]
    left = np.array(fluid.global_scope().find_var("p").get_tensor())[:, 0]
    assert left.tolist() == [0.5, 0.0, -1.5, -2.0, 1.0, 1.0, -0.5, -1.0]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([1, 3, 0, 0, 0], "the rank 3, expected at most 2"),
        ([1, 1, 1, 0, 0], "refers to row 1 of X"),
    ],
)
def test_ranks_and_rows_that_are_not_there(programs: Any, chosen: Any, message: str) -> None:
    x = fluid.data("x", [None, 2])
    ranks = fluid.data("ranks", [None, 5], "int32")
    out = more.rank_attention(x, ranks, [8, 3], fluid.ParamAttr("p"), max_rank=2)
    with pytest.raises(ValueError, match=message):
        run(programs, {"x": np.ones((1, 2), "f4"), "ranks": np.array([chosen], "i4")}, out)
    with pytest.raises(AssertionError, match="expected 18 rows"):
        more.rank_attention(x, ranks, [8, 3], fluid.ParamAttr("q"), max_rank=3)


def hashed(stops: bool, lr: float = 0.5) -> Any:
    """Return the sum of hashed runs of words times numbers, and its gradients appended."""
    x = fluid.data("x", [None, 1], "int32", lod_level=1)
    x.stop_gradient = stops
    w = fluid.ParamAttr("W", initializer=fluid.initializer.NormalInitializer(seed=4))
    out = more.search_pyramid_hash(
        x, 8, 20, 3, 4, 0.0, True, False, 1, 1, 1, lr, w, fluid.ParamAttr("white"),
        fluid.ParamAttr("black"), distribute_update_vars=["W"],
    )  # fmt: skip
    loss = layers.reduce_sum(layers.square(out))
    fluid.backward.append_backward(loss)
    return loss


@pytest.mark.parametrize("stops", [True, False])
def test_backward_updates_the_table_itself(programs: Any, stops: bool) -> None:
    loss = hashed(stops)
    feed = {"x": fluid.create_lod_tensor(WORDS, [[3, 2]], fluid.CPUPlace())}
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    tensor = fluid.global_scope().find_var("W").get_tensor()
    before = np.array(tensor)
    losses = [exe.run(programs, feed, [loss])[0][0]]
    change = (np.array(tensor) - before) / -0.5
    if stops:
        assert not change.any()
        return
    step = np.random.default_rng(1).normal(size=before.shape).astype("f4") * 1e-2
    for sign in (1, -1):
        tensor.set(before + sign * step, fluid.CPUPlace())
        losses.append(exe.run(programs, feed, [loss])[0][0])
    np.testing.assert_allclose((change * step).sum(), (losses[1] - losses[2]) / 2, rtol=1e-3)


def test_a_parameter_that_the_layer_does_not_have() -> None:
    x = fluid.data("x", [None, 1], "int32", lod_level=1)
    with pytest.raises(ValueError, match="no parameter 'V'"):
        more.search_pyramid_hash(
            x, 8, 20, 3, 4, 0.0, True, False, 0, 0, 1, 0.1, fluid.ParamAttr("W"),
            distribute_update_vars=["V"],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("header", "message"),
    [([1, 8, 1, 0], "is not a Bloom filter"), ([17070416, 512, 1, 0], "has 512 bits")],
)
def test_a_filter_that_is_none(programs: Any, header: list[int], message: str) -> None:
    stored = np.array([*header, 0, 0], np.uint64).view(np.float32).reshape(-1, 1)
    x = fluid.data("x", [None, 1], "int32", lod_level=1)
    out = more.search_pyramid_hash(
        x, 8, 20, 3, 4, 0.0, False, True, len(stored), 0, 1, 0.1, None, fluid.ParamAttr("white")
    )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.global_scope().find_var("white").get_tensor().set(stored, fluid.CPUPlace())
    feed = {"x": fluid.create_lod_tensor(WORDS, [[5]], fluid.CPUPlace())}
    with pytest.raises(ValueError, match=message):
        exe.run(programs, feed, [out])
