"""Companion values of a variable: the LoD of sequences and the rows of sparse gradients."""

from itertools import pairwise

import numpy as np
import pytest

import compiler
from compiler.driver import compile_stages
from compiler.errors import CompileError
from compiler.interpret import run
from compiler.ir.analysis.verifier import verify
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim
from compiler.ir.opdef.type_inference import infer_op
from compiler.ir.program import Program
from compiler.ir.text.printer import parse, parse_program, show
from runtime.loader import load

N, M = Dim.named("N"), Dim.named("M")

WORDS = """
program {
  block 0 {
    var ids: i64[?, 1] {'lod_level': 1}
    var table: f32[5, 3] {'persistable': True}
    var vectors: f32[?, 3]
    var active: f32[?, 3]
    var pooled: f32[?, 3]
    (Out=vectors) = lookup_table(Ids=ids, W=table)  // net.py:4
    (Out=active) = relu(X=vectors)
    (Out=pooled) = sequence_pool(X=active) {'pooltype': 'SUM'}  // net.py:6
  }
}
"""

TWICE = """
program {
  block 0 {
    var a: i64[?, 1]
    var b: i64[?, 1]
    var table: f32[5, 2] {'persistable': True}
    var lr: f32[1]
    var ga: f32[?, 2]
    var gb: f32[?, 2]
    var first: f32[5, 2] {'kind': 'SELECTED_ROWS'}
    var second: f32[5, 2] {'kind': 'SELECTED_ROWS'}
    var both: f32[5, 2] {'kind': 'SELECTED_ROWS'}
    var gated: f32[5, 2]
    (W@GRAD=first) = lookup_table_grad(Ids=a, Out@GRAD=ga, W=table) {'is_sparse': True}
    (W@GRAD=second) = lookup_table_grad(Ids=b, Out@GRAD=gb, W=table) {'is_sparse': True}
    (Out=both) = sum(X=[first, second])
    (Out=gated) = elementwise_mul(X=both, Y=table)
    (ParamOut=table) = sgd(Grad=both, LearningRate=lr, Param=table)
  }
}
"""


def graph_of(text: str, fetch: list[str], **feed):
    feed = {name.replace("_LOD", "@LOD"): shape for name, shape in feed.items()}
    graph = to_graph(parse_program(text), feed, fetch)
    verify(graph)
    assert show(parse(show(graph))) == show(graph)
    return graph


def test_outputs_share_the_lod_of_their_input_unless_an_op_declares_another():
    graph = graph_of(WORDS, ["active", "pooled"], ids=(N, 1), ids_LOD0=(M + 1,))
    assert [var.label for var in graph.results] == ["active", "active@LOD0", "pooled"]
    pool = graph.producer(graph.find("pooled"))
    assert [var.label for var in pool.inputs["X_lod"]] == ["ids@LOD0"]
    assert str(graph.find("pooled").type) == "f32[M, 3]"


def test_sequences_that_were_not_fed_are_named():
    with pytest.raises(
        CompileError, match="sequence_pool reads sequences, but 'active' has no LoD"
    ):
        graph_of(WORDS, ["pooled"], ids=(N, 1))


def test_one_module_serves_sequences_of_any_lengths():
    program = parse_program(WORDS)
    module = compiler.compile(program, feed=["ids"], fetch=["pooled"])
    assert [tensor.name for tensor in module.feeds] == ["ids", "ids@LOD0"]
    step = load(module, params={"table": np.arange(15, dtype=np.float32).reshape(5, 3)})
    for lengths in ([2, 3], [1, 1, 4], [7]):
        ids = np.arange(sum(lengths), dtype=np.int64)[:, None] % 5
        offsets = np.cumsum([0, *lengths])
        (pooled,) = step({"ids": ids, "ids@LOD0": offsets})
        rows = np.arange(15).reshape(5, 3)[ids[:, 0]]
        expected = [rows[a:b].sum(0) for a, b in pairwise(offsets)]
        assert np.array_equal(pooled, expected)


def test_sparse_gradients_stay_rows_where_ops_know_them_and_are_dense_elsewhere():
    feed = {"a": (N, 1), "b": (M, 1), "ga": (N, 2), "gb": (M, 2), "lr": (1,)}
    graph = graph_of(TWICE, ["gated", "both"], **feed)
    kinds = [op.kind for op in graph.ops()]
    assert kinds.count("densify_rows") == 1
    update = next(op for op in graph.ops() if op.kind == "sgd_rows")
    assert str(update["Grad"].type) == "f32[N + M, 2]" or "M + N" in str(update["Grad"].type)
    assert update.inputs["Grad_rows"]
    assert graph.results[1].label == "both#1"


def test_rows_compute_what_the_dense_gradient_does():
    program, rng = parse_program(TWICE), np.random.default_rng(0)
    ids = {"a": np.array([[1], [1], [4]]), "b": np.array([[0], [1]])}
    parts = {f"g{n}": rng.random((len(ids[n]), 2)).astype(np.float32) for n in "ab"}
    table = rng.random((5, 2)).astype(np.float32)
    whole = np.zeros((5, 2), np.float32)
    for name in "ab":
        np.add.at(whole, ids[name][:, 0], parts[f"g{name}"])
    feed = {**ids, **parts, "lr": np.array([0.5], np.float32)}
    stages = compile_stages(program, feed=feed, fetch=["gated", "both"])
    for compute in (interpreted, generated):
        params = {"table": table.copy()}
        gated, both = compute(stages, feed, params)
        assert np.allclose(both, whole)
        assert np.allclose(gated, whole * table)
        assert np.allclose(params["table"], table - 0.5 * whole)


def interpreted(stages, feed, params):
    return run(stages.graph, feed, params)


def generated(stages, feed, params):
    return load(stages.module, params=params)(feed)


def test_a_program_reports_levels_and_kinds_of_what_ops_make():
    program: Program = parse_program(WORDS)
    for op in program.blocks[0].ops[:2]:
        infer_op(program.blocks[0], op)
    levels = {name: var.lod_level for name, var in program.blocks[0].vars.items()}
    assert (levels["vectors"], levels["active"]) == (1, 1)
