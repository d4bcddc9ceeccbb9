"""Updates by sparse rows on the device: rows that repeat, in any order, whatever their number."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime
from compiler.driver import compile_graph
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.ops.duplicate_rows import CHUNK
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.codegen.support import inputs
from tests.codegen.test_triton import module_of
from tests.ops.samples import samples
from tests.ops.test_generated import NOBODY, backward, graph_of
from tests.ops.test_on_device import TARGET

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

STATE = {
    "sgd_rows": "LearningRate[1]",
    "adagrad_rows": "LearningRate[1] Moment",
    "adam_rows": "LearningRate[1] Moment1 Moment2 Beta1Pow[1] Beta2Pow[1]",
}


def updated(kind, height, width):
    """A graph in which rows of a table are updated."""
    params, sides, outs = [f"param Param: f32[{height}, {width}]"], ["Param=Param"], ["Param"]
    for word in STATE[kind].split():
        name, one, _ = word.partition("[1]")
        params.append(f"param {name}: f32{one or f'[{height}, {width}]'}")
        sides.append(f"{name}={name}")
        outs += [name] if name != "LearningRate" else []
    created = ", ".join(
        f"{name}Out={name}#1: f32{'[1]' if 'Pow' in name else f'[{height}, {width}]'} over {name}"
        for name in outs
    )
    feeds = [f"feed g: f32[N, {width}]", "feed rows: i64[N]"]
    call = f"({created}) = {kind}({', '.join(sides)}, Grad=g, Grad_rows=rows)"
    return "\n  ".join(["graph main {", *feeds, *params, call]) + "\n}\n"


def both(kind, height, width, rows):
    """State after a step on the device, and as the graph means it."""
    text, rng = updated(kind, height, width), np.random.default_rng(len(rows))
    graph = parse(text)
    state = {
        var.name: rng.uniform(0.1, 0.9, var.type.shape).astype("float32") for var in graph.params()
    }
    feed = {"g": rng.standard_normal((len(rows), width)).astype("float32"), "rows": rows}
    mine, theirs = ({name: array.copy() for name, array in state.items()} for _ in range(2))
    runtime.load(module_of(text), runtime.CUDAPlace(0), mine)(feed)
    run(graph, feed, theirs)
    return mine, theirs


@pytest.mark.parametrize("kind", STATE)
@settings(max_examples=8, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 5), data=st.data())
def test_rows_that_repeat_count_as_their_sum(kind, height, width, data):
    rows = data.draw(st.lists(st.integers(0, height - 1), min_size=1, max_size=40))
    mine, theirs = both(kind, height, width, np.array(rows, dtype="int64"))
    for name, array in theirs.items():
        np.testing.assert_allclose(mine[name], array, rtol=2e-5, atol=1e-6, err_msg=name)


def test_rows_of_several_chunks_are_merged():
    rows = np.random.default_rng(1).integers(0, 400, CHUNK.default + 30)
    rows[CHUNK.default - 3 : CHUNK.default + 3] = 5
    mine, theirs = both("adagrad_rows", 400, 2, rows)
    for name, array in theirs.items():
        np.testing.assert_allclose(mine[name], array, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", STATE)
def test_rows_that_no_table_has_change_nothing(kind):
    text = updated(kind, 4, 3)
    state = {var.name: np.full(var.type.shape, 0.5, "float32") for var in parse(text).params()}
    feed = {"g": np.ones((3, 3), "float32"), "rows": np.array([-1, 4, 1 << 40])}
    runtime.load(module_of(text), runtime.CUDAPlace(0), state)(feed)
    assert (state["Param"] == 0.5).all()


@pytest.mark.parametrize("kind", ["adagrad_rows", "adam_rows"])
def test_sparse_row_sums_are_deterministic(kind):
    rows = np.random.default_rng(0).integers(0, 3, 300)
    first, _ = both(kind, 5, 2, rows)
    again, _ = both(kind, 5, 2, rows)
    assert all((first[name] == again[name]).all() for name in first)


ADDED = {
    "sgd_rows": updated("sgd_rows", 5, 2),
    "lookup_table_v2_grad": """graph main {
  feed rows: i64[N]
  feed g: f32[N, 2]
  param w: f32[5, 2]
  (W@GRAD=d: f32[5, 2]) = lookup_table_v2_grad(Ids=rows, Out@GRAD=g, W=w)
  return d
}
""",
    "gather_grad": """graph main {
  feed x: f32[5, 2]
  feed rows: i64[N]
  feed g: f32[N, 2]
  (X@GRAD=d: f32[5, 2]) = gather_grad(Index=rows, Out@GRAD=g, X=x) {'overwrite': False}
  return d
}
""",
}


@pytest.mark.parametrize("text", ADDED.values(), ids=ADDED)
def test_rows_are_added_in_one_order_if_options_require_it(text):
    graph, rng = parse(text), np.random.default_rng(1)
    feed, state = inputs(graph, 40)
    feed["rows"] = rng.integers(0, 5, 40)
    mine, theirs = ({name: array.copy() for name, array in state.items()} for _ in range(2))
    options = Options(deterministic=True)
    module = compile_graph(parse(text), target="triton", options=options).module
    assert "tl.atomic_add" not in module.source
    assert "tl.atomic_add" in compile_graph(parse(text), target="triton").module.source
    got = runtime.load(module, runtime.CUDAPlace(0), mine)(feed)
    for a, b in zip(got, run(graph, feed, theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)
    for name in theirs:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-5, err_msg=name)


def test_the_environment_asks_for_one_order():
    assert Options.from_env({"FLUID_DETERMINISTIC": "1"}).deterministic
    assert not Options.from_env({}).deterministic


@pytest.mark.parametrize("op", ["nce", "hierarchical_sigmoid"])
def test_weights_of_chosen_classes_are_summed_in_one_order(op):
    case = backward(next(s for s in samples() if s.op == op and "Bias" in s.grads))
    graph, feed = graph_of(case, list(case.results), NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    module = TARGET.emit(replace(freeze(graph), in_order=True))
    assert "tl.atomic_add" not in module.source
    got = runtime.load(module, runtime.CUDAPlace(0))(feed)
    for found, want in zip(got, case.results.values(), strict=True):
        np.testing.assert_allclose(found, want, rtol=5e-5, atol=2e-6)
