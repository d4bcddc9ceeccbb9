"""What each collective op makes of the values of several ranks, on the host and for a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.machine import AVX512
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.support.rank_world import World

GIVEN = [np.arange(12, dtype=np.float32).reshape(4, 3) + 100 * rank for rank in range(2)]
WHOLE = np.concatenate(GIVEN)
OPS: dict[str, tuple[str, list[Any]]] = {
    "c_allreduce_sum": ("", [sum(GIVEN)] * 2),
    "c_allreduce_max": ("", [GIVEN[1]] * 2),
    "c_allreduce_min": ("", [GIVEN[0]] * 2),
    "c_allreduce_prod": ("", [GIVEN[0] * GIVEN[1]] * 2),
    "allreduce": ("'reduce_type': 2", [GIVEN[1]] * 2),
    "c_reduce_sum": ("'root_id': 1", [GIVEN[0], sum(GIVEN)]),
    "c_reduce_max": ("'root_id': 0", [GIVEN[1], GIVEN[1]]),
    "c_reduce_min": ("'root_id': 1", [GIVEN[0], GIVEN[0]]),
    "c_reduce_prod": ("'root_id': 1", [GIVEN[0], GIVEN[0] * GIVEN[1]]),
    "c_broadcast": ("'root': 1", [GIVEN[1]] * 2),
    "broadcast": ("'root': 1", [GIVEN[1]] * 2),
    "barrier": ("", GIVEN),
    "c_allgather": ("'nranks': 2", [WHOLE] * 2),
    "c_reducescatter": ("'nranks': 2", [sum(GIVEN)[:2], sum(GIVEN)[2:]]),
    "c_scatter": ("'nranks': 2, 'root': 1", [GIVEN[1][:2], GIVEN[1][2:]]),
}


def text(kind: str, rows: Any = 4) -> str:
    attrs, result = OPS[kind][0], OPS[kind][1][0]
    out = result.shape[0] if rows == 4 else {8: "2*N", 2: "N//2"}.get(result.shape[0], "N")
    attrs = ", ".join(filter(None, [attrs, "'variable': 'x'"]))
    return (
        f"graph main {{\n  feed x: f32[{rows}, 3]\n"
        f"  (Out=y: f32[{out}, 3], After=t: token[]) = {kind}(X=x) {{{attrs}}}\n"
        "  return y, x\n}\n"
    )


def module_of(source: str, target: Any) -> Any:
    graph = parse(source)
    run_passes(graph, pipeline(Options(), target), Context())
    return target.emit(freeze(graph))


def computed(module: Any, place: Any, feeds: list[dict[str, Any]]) -> list[Any]:
    """What each rank's step returns."""

    def work(rank: Any) -> Any:
        step = runtime.load(module, place, {}, names={"collective": rank})
        return [np.array(value) for value in step(feeds[rank.number])]

    return World(len(feeds)).run(work)


TARGETS = [
    pytest.param(NumpyTarget(), None, id="numpy"),
    pytest.param(TritonTarget(), runtime.CUDAPlace(0), id="triton", marks=pytest.mark.device),
]


@pytest.mark.parametrize(("target", "place"), TARGETS)
@pytest.mark.parametrize("kind", OPS)
def test_ranks_together(kind: str, target: Any, place: Any) -> None:
    module = module_of(text(kind), target)
    result = computed(module, place, [{"x": x} for x in GIVEN])
    for rank, (y, x) in enumerate(result):
        np.testing.assert_array_equal(y, OPS[kind][1][rank])
        np.testing.assert_array_equal(x, GIVEN[rank])
    if place is not None and kind.startswith("c_allreduce"):
        assert ".copy_(" in module.source and "np.copyto" not in module.source


def test_a_size_that_a_run_decides() -> None:
    module = module_of(text("c_allreduce_sum", "N"), NumpyTarget())
    assert module.collectives == (
        "c_allreduce_sum x float32[?, 3] (ring_id=0, use_calc_stream=False)",
    )
    for y, _ in computed(module, None, [{"x": x[:2]} for x in GIVEN]):
        np.testing.assert_array_equal(y, sum(GIVEN)[:2])


def test_a_module_alone_is_one_rank(tmp_path: Any) -> None:
    module = module_of(text("c_allreduce_sum"), NumpyTarget())
    (y, _) = runtime.load(module, params={})({"x": GIVEN[0]})
    np.testing.assert_array_equal(y, GIVEN[0])
    module.save(tmp_path / "module.py")
    assert type(module).load(tmp_path / "module.py").collectives == module.collectives


ROWS = """graph main {
  feed r: i64[N]
  feed v: f32[N, 2]
  (Out=y: f32[?, 2], Out_rows=yr: i64[?], After=t: token[]) = c_allreduce_sum_rows(X=v, X_rows=r) {'variable': 'w@GRAD'}
  (Out=d: f32[6, 2]) = densify_rows(X=y, X_rows=yr) {'height': 6}
  return y, yr, d
}
"""


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
def test_tables_are_updated_in_place_by_the_rows_of_all_ranks() -> None:
    """The number of rows is data-dependent; NumPy's update would copy the whole table."""
    graph = parse("""graph main {
  feed r: i64[N]
  feed v: f32[N, 2]
  param lr: f32[1]
  param w: f32[6, 2]
  (Out=y: f32[?, 2], Out_rows=yr: i64[?], After=t: token[]) = c_allreduce_sum_rows(X=v, X_rows=r)
  (Out=z: f32[?, 2], Out_rows=zr: i64[?]) = scale_rows(X=y, X_rows=yr) {'scale': 0.5}
  (ParamOut=w#1: f32[6, 2] over w) = sgd_rows(Param=w, Grad=z, Grad_rows=zr, LearningRate=lr)
}
""")
    target = NativeTarget()
    run_passes(graph, pipeline(Options(), target), Context())
    plan = freeze(graph)
    assert "sgd_rows" in [call.name for call in target.module_writer(plan).costs]
    params = {"lr": np.array([0.1], np.float32), "w": np.ones((6, 2), np.float32)}
    step = runtime.load(target.emit(plan), params=params)
    for rows in ([4, 1, 4], [2]):
        step({"r": np.array(rows), "v": np.full((len(rows), 2), 2, np.float32)})
    np.testing.assert_allclose(params["w"][:, 0], [1, 0.9, 0.9, 1, 0.8, 1])


def test_a_wait_does_not_write_a_native_module_again() -> None:
    graph = parse("""graph main {
  feed x: f32[4]
  (Out=y: f32[4], After=t: token[]) = start_all_reduce(X=x) {'variable': 'x'}
  (Out=z: f32[4]) = wait_all_reduce(X=y) {'variable': 'x'}
  return z
}
""")
    target = NativeTarget(AVX512)
    run_passes(graph, pipeline(Options(), target), Context())
    assert not target.module_writer(freeze(graph)).fallbacks


def test_sparse_gradients_are_gathered() -> None:
    feeds = [
        {"r": np.array([4, 1]), "v": np.ones((2, 2), np.float32)},
        {"r": np.array([4, 4, 0]), "v": np.full((3, 2), 10, np.float32)},
    ]
    for y, rows, dense in computed(module_of(ROWS, NumpyTarget()), None, feeds):
        assert rows.tolist() == [4, 1, 4, 4, 0] and y.shape == (5, 2)
        assert dense[:, 0].tolist() == [10, 1, 0, 0, 21, 0]


def test_the_interpreter_is_one_rank() -> None:
    (y, _) = run(parse(text("c_allreduce_sum")), {"x": GIVEN[0]}, {})
    np.testing.assert_array_equal(y, GIVEN[0])
