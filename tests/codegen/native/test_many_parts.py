"""Ops of many tensors are compiled in time and code in proportion to their number."""

from __future__ import annotations

import numpy as np
import pytest

import compiler.freeze as freezing
import runtime
from compiler import plan_check
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.writer import Names
from compiler.freeze import freeze
from compiler.ir.analysis import allocation
from compiler.ir.graph import Graph
from compiler.ir.region import are_disjoint
from compiler.ir.types import DType, TensorType
from compiler.ops.shape.concat import Split
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline

PARTS = 256
ROW, ROWS = TensorType(DType.FP32, (1, 3)), TensorType(DType.FP32, (PARTS, 3))
FLAT = TensorType(DType.FP32, (3,))
TARGET = NativeTarget()

CASES = {
    "unstack": ({"axis": 0, "num": PARTS}, "Y", [ROWS], [FLAT] * PARTS),
    "unbind": ({"axis": 0}, "Out", [ROWS], [FLAT] * PARTS),
    "split": ({"axis": 0, "num": PARTS}, "Out", [ROWS], [ROW] * PARTS),
    "concat": ({"axis": 0}, "Out", [ROW] * PARTS, [ROWS]),
    "stack": ({"axis": 0}, "Y", [FLAT] * PARTS, [ROWS]),
    "sum": ({}, "Out", [FLAT] * PARTS, [FLAT]),
}


def graph_of(kind: str) -> Graph:
    attributes, slot, inputs, created = CASES[kind]
    graph = Graph()
    fed = [graph.feed(f"x{n}", type) for n, type in enumerate(inputs)]
    graph.results = [graph.var(f"y{n}", type) for n, type in enumerate(created)]
    graph.op(kind, {"X": fed}, {slot: graph.results}, attributes)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    return graph


@pytest.mark.parametrize("kind", CASES)
def test_an_op_of_many_tensors_has_a_few_lines_of_code_for_each(kind: str) -> None:
    module = TARGET.emit(freeze(graph_of(kind)))
    assert len(module.source) < 1000 + 300 * PARTS
    numbers = np.arange(3 * PARTS, dtype=np.float32).reshape(-1, 3)
    parts = [*numbers] if CASES[kind][2][0] is FLAT else [*numbers[:, None]]
    feed = (
        {"x0": numbers} if len(CASES[kind][2]) == 1 else {f"x{n}": p for n, p in enumerate(parts)}
    )
    actual = np.stack([np.asarray(each) for each in runtime.load(module)(feed)])
    expected = numbers.sum(axis=0) if kind == "sum" else numbers
    np.testing.assert_allclose(actual.reshape(expected.shape), expected, rtol=1e-6)


def test_aliases_are_computed_once_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    shares = Split.shares
    monkeypatch.setattr(Split, "shares", lambda *given: [calls.append(given), shares(*given)][1])
    freeze(graph_of("split"))
    assert len(calls) < 50


def test_parts_in_one_buffer_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a split that are joined again are all placed in the joined one."""
    calls: list[object] = []
    for module in (allocation, freezing, plan_check):
        monkeypatch.setattr(
            module, "are_disjoint", lambda *given: [calls.append(given), are_disjoint(*given)][1]
        )
    graph = Graph()
    source, joined = graph.feed("x", ROWS), graph.var("z", ROWS)
    parts = [graph.var(f"y{n}", ROW) for n in range(PARTS)]
    graph.op("split", {"X": [source]}, {"Out": parts}, CASES["split"][0])
    graph.op("concat", {"X": parts}, {"Out": [joined]}, CASES["concat"][0])
    graph.results = [joined]
    run_passes(graph, pipeline(Options(), TARGET), Context())
    freeze(graph)
    assert len({(each.slot) for each in (*parts, joined)}) == 1
    assert len(calls) < 20 * PARTS


def test_names_of_one_stem_are_counted_on() -> None:
    names = Names({"x"})
    created = [names.make("x") for _ in range(30_000)]
    assert created[-1] == "x_30000"
