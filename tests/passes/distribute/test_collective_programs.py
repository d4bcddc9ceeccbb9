"""Programs with collectives: startup programs, sparse gradients, loops, the order of all of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.errors import VerifyError
from compiler.ir.analysis.verifier import verify
from compiler.ir.conversion.graph_to_program import to_program
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.text.printer import parse, show
from compiler.passes.distribute.buckets import cut
from tests.support.rank_world import World


@pytest.fixture(autouse=True)
def fresh() -> Any:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield fluid.default_main_program().global_block()


def test_a_startup_program_makes_rings(fresh: Any) -> None:
    raw = fluid.core.VarDesc.VarType.RAW
    nccl = fresh.create_var(name="nccl_id_0", persistable=True, type=raw)
    ends = {"endpoint": "b:1", "other_endpoints": ["a:1", "c:1"], "rank": 1}
    fresh.append_op(type="c_gen_nccl_id", outputs={"Out": [nccl]}, attrs=ends)
    inputs = {"nranks": 3, "rank": 1, "ring_id": 2}
    fresh.append_op(type="c_comm_init", inputs={"X": [nccl]}, attrs=inputs)
    fresh.append_op(type="c_comm_init_all", attrs={"devices": [0, 1]})
    w = fresh.create_var(name="w", shape=[2], dtype="float32", persistable=True)
    fresh.append_op(type="c_broadcast", inputs={"X": [w]}, outputs={"Out": [w]},
                    attrs={"root": 1, "ring_id": 2})  # fmt: skip
    fresh.append_op(type="c_sync_comm_stream", inputs={"X": [w]}, outputs={"Out": [w]},
                    attrs={"ring_id": 2})  # fmt: skip
    module = compiler.compile(fluid.default_main_program(), target="numpy")

    def work(rank: Any) -> Any:
        state = {"w": np.full(2, rank.number, np.float32)}
        runtime.load(module, params=state, names={"collective": rank})({})
        return state["w"].tolist(), rank.made

    for state, made in World(2).run(work):
        assert state == [1.0, 1.0]
        assert made == [("id", "nccl_id_0", 1, ["a:1", "b:1", "c:1"]),
                        ("ring", 2, "nccl_id_0", 3, 1), ("ring", 0, "", 2, 0)]  # fmt: skip


def test_hierarchical_ids(fresh: Any) -> None:
    nccl = fresh.create_var(name="NCCLID", persistable=True, type=fluid.core.VarDesc.VarType.RAW)
    attrs = {"trainers": ["a:1", "b:1", "c:1", "d:1"], "trainer_id": 2, "nccl_comm_num": 2,
             "use_hierarchical_allreduce": True, "hierarchical_allreduce_inter_nranks": 2}  # fmt: skip
    fresh.append_op(type="gen_nccl_id", outputs={"NCCLID": [nccl]}, attrs=attrs)
    module = compiler.compile(fluid.default_main_program(), target="numpy")

    def work(rank: Any) -> Any:
        runtime.load(module, params={}, names={"collective": rank})({})
        return rank.made

    (created,) = World(1).run(work)
    whole = attrs["trainers"]
    assert created == [
        ("id", "NCCLID", 2, whole), ("id", "NCCLID_1", 2, whole),
        ("id", "Hierarchical_inter_NCCLID_0", 0, ["c:1", "d:1"]),
        ("id", "Hierarchical_inter_NCCLID_1", 0, ["c:1", "d:1"]),
        ("id", "Hierarchical_exter_NCCLID_0", 1, ["a:1", "c:1"]),
        ("id", "Hierarchical_exter_NCCLID_1", 1, ["a:1", "c:1"]),
    ]  # fmt: skip


def embedding(ranks: int) -> tuple[Any, str]:
    ids = fluid.data("ids", [None, 1], "int64")
    vectors = fluid.layers.embedding(ids, size=[9, 4], is_sparse=True)
    loss = fluid.layers.reduce_sum(vectors * vectors)
    optimizer = fluid.optimizer.Adagrad(0.1)
    pairs = optimizer.backward(loss)
    for _, gradient in pairs if ranks else []:
        fluid.default_main_program().global_block().append_op(
            type="c_allreduce_sum", inputs={"X": [gradient]}, outputs={"Out": [gradient]},
            attrs={"op_role": 1},
        )  # fmt: skip
    optimizer.apply_gradients(pairs)
    return fluid.default_main_program(), pairs[0][0].name


IDS = np.array([[1], [4], [4], [0], [8]])


def updated(program: Any, world: World, bounds: list[int]) -> list[Any]:
    module = compiler.compile(program, feed=["ids"], target="numpy")

    def work(rank: Any) -> Any:
        state = {row.name: np.full(row.shape, 0.5, row.dtype) for row in module.params}
        step = runtime.load(module, params=state, names={"collective": rank})
        for _ in range(2):
            step({"ids": IDS[bounds[rank.number] : bounds[rank.number + 1]]})
        return state

    return world.run(work)


def test_sparse_gradients_train_as_the_whole_batch() -> None:
    program, _ = embedding(2)
    assert "c_allreduce_sum_rows" in compiler.compile(program, feed=["ids"]).source
    result = updated(program, World(2), [0, 2, 5])
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        (want,) = updated(embedding(0)[0], World(1), [0, 5])
    for state in result:
        for name in want:
            np.testing.assert_allclose(state[name], want[name], rtol=1e-6)


def test_collectives_in_a_loop_keep_their_order(fresh: Any) -> None:
    x = fluid.data("x", [3], "float32")
    layers = fluid.layers
    first = layers.collective._c_allreduce(x)
    count, limit = (layers.fill_constant([1], "int64", n) for n in (0, 3))
    total = layers.fill_constant([3], "float32", 0.0)
    cond = layers.less_than(count, limit)
    loop = layers.While(cond)
    with loop.block():
        layers.assign(layers.collective._c_allreduce(layers.elementwise_add(total, x)), total)
        layers.increment(count, 1, in_place=True)
        layers.less_than(count, limit, cond=cond)
    last = layers.collective._c_allreduce(x, reduce_type="max")
    program, names = fluid.default_main_program(), [v.name for v in (first, total, last)]
    graph = to_graph(program, {"x": (3,)}, names)
    chain = [op for op in graph.ops() if op.defn.is_ordered()]
    assert [op.kind for op in chain] == ["c_allreduce_sum", "loop", "c_allreduce_max"]
    assert all(b["Before"] is a["After"] for a, b in pairwise(chain))
    assert show(parse(show(graph))) == show(graph)
    to_program(graph)
    module = compiler.compile(program, feed=["x"], fetch=names, target="numpy")
    assert [line.split()[0] for line in module.collectives] == [
        "c_allreduce_sum", "c_allreduce_sum", "c_allreduce_max"
    ]  # fmt: skip

    def work(rank: Any) -> Any:
        feed = {"x": np.full(3, 1.0 + rank.number, np.float32)}
        step = runtime.load(module, params={}, names={"collective": rank})
        return [value.tolist()[0] for value in step(feed)]

    for found in World(2).run(work):
        # 0 → (0+1) + (0+2) = 3 → (3+1) + (3+2) = 9 → 21
        assert found == [3.0, 21.0, 2.0]


def test_order_is_checked() -> None:
    text = """graph main {
      feed x: f32[3]
      (Out=y: f32[3], After=t: token[]) = c_allreduce_max(X=x)
      (Out=z: f32[3], After=u: token[]) = c_allreduce_sum(X=x, Before=t)
      return y, z
    }"""
    graph = parse(text)
    graph.reorder(reversed(graph.ops()))
    with pytest.raises(VerifyError, match="'t' is read before it is written"):
        verify(graph)


def test_unread_collectives_are_kept() -> None:
    text = (
        "graph main {\n feed x: f32[3]\n (Out=y: f32[3], After=t: token[]) = c_broadcast(X=x)\n}\n"
    )
    assert "broadcast" in compiler.driver.compile_graph(parse(text)).module.source


KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("sizes", "limit", "want"),
    [
        ([], None, []),
        ([4], None, [1]),
        ([4] * 50, None, [50]),
        ([100 * KB] * 3, None, [3]),
        ([MB] * 8, None, None),
        ([16 * MB, 4, 16 * MB, 4], None, [2, 2]),
        ([10, 10, 10, 10], 20, [2, 2]),
        ([100, 10, 100], 20, [1, 1, 1]),
    ],
)
def test_cuts(sizes: list[int], limit: int | None, want: list[int] | None) -> None:
    counts = cut(sizes, limit)
    assert sum(counts) == len(sizes)
    if want is not None:
        assert counts == want
    elif limit is None:
        assert 1 < len(counts) < len(sizes), "neither all at once nor each by itself"
