"""Graphs as ONNX models: ONNX Runtime computes what the ops mean, refusals are listed at once."""

from typing import Any

import numpy as np
import pytest

from compiler.codegen.onnx.export import ExportError, onnx_model, writes
from compiler.ir.opdef import find, listed
from compiler.ir.text.parser import parse
from tests.ops.samples import Sample
from tests.ops.test_generated import ALONE, NOBODY, Case, forward, graph_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
onnxruntime.set_default_logger_severity(4)

KINDS = list(dict.fromkeys(sample.op for sample in ALONE if not find(sample.op).is_random))
"""The ops with samples that draw no numbers."""
NOT_BY_A_SAMPLE = frozenset({
    "merge_lod_tensor_infer", "sync_batch_norm",
})  # fmt: skip
"""Ops with a counterpart for some attributes, but for those of no sample."""
ABSENT = "NOT_IMPLEMENTED"
"""ONNX Runtime's word for an element type that it lacks."""


def session(proto: Any) -> Any:
    """ONNX Runtime's session of a model that passes ONNX's full check."""
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString())


def exported(case: Case, slots: list[str], batch: int) -> bool:
    """Export some results of a case and compare them; False if ONNX lacks something for it."""
    graph, feed = graph_of(case, slots, batch)
    try:
        run = session(onnx_model(graph, {}))
    except ExportError:
        return False
    except Exception as error:
        if ABSENT in str(error):
            return False
        raise
    results = run.run(None, {each.name: feed[each.name] for each in run.get_inputs()})
    expected = [array for slot in slots for array in listed(case.results[slot])]
    for result, array in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (array.shape, array.dtype)
        finite = np.abs(array[np.isfinite(array)].astype(np.float64))
        atol = 1e-5 * max(1.0, finite.max(initial=0.0))
        np.testing.assert_allclose(result, array, 1e-4, atol, err_msg=f"{case.op} {case.attrs}")
    return True


def is_exported(sample: Sample, named: bool) -> bool:
    """Export a sample with fixed sizes, and a `named` one: all of its results, or each alone."""
    case = forward(sample)
    full = [s for s, value in case.results.items() if any(np.size(v) for v in listed(value))]
    choices = [full] if not full or exported(case, full, NOBODY) else [[slot] for slot in full]
    possible = [slots for slots in choices if slots and exported(case, slots, NOBODY)]
    first = next((v for v in case.values.values() if isinstance(v, np.ndarray) and v.ndim), None)
    if named and first is not None and len(first) != NOBODY:
        for slots in possible:
            exported(case, slots, len(first))
    return bool(possible)


def test_onnx_runtime_computes_what_the_ops_mean() -> None:
    samples = [sample for sample in ALONE if sample.op in KINDS]
    exported_ops: set[str] = set()
    for sample in samples:
        if is_exported(sample, named=sample.op not in exported_ops):
            exported_ops.add(sample.op)
    assert exported_ops == {op for op in KINDS if writes(find(op))} - NOT_BY_A_SAMPLE


GRAPH = """graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  (Out=y: f32[N, 3]) = mul(X=x, Y=w)
  (Out=z: f32[3*N]) = reshape(X=y) {'shape': [-1]}
  return y, z
}
"""


def test_names_sizes_and_weights_are_those_of_the_graph() -> None:
    run = session(onnx_model(parse(GRAPH), {"w": np.ones((4, 3), np.float32)}))
    assert [(each.name, each.shape) for each in run.get_inputs()] == [("x", ["N", 4])]
    assert [each.name for each in run.get_outputs()] == ["y", "z"]
    y, z = run.run(None, {"x": np.ones((5, 4), np.float32)})
    assert y.shape == (5, 3) and z.shape == (15,) and (y == 4).all()


def test_all_ops_that_onnx_lacks_are_listed_at_once() -> None:
    graph = parse(
        "graph main {\n  feed x: f32[2, 2]\n  (Out=y: f32[2, 2]) = bernoulli(X=x)  // a.py:3\n"
        "  (Out=z: f32[2]) = sampling_id(X=y)  // a.py:4\n  return y, z\n}\n"
    )
    with pytest.raises(ExportError) as error:
        onnx_model(graph, {})
    kinds = [refusal.kind for refusal in error.value.refusals]
    assert kinds == ["bernoulli", "sampling_id"]


def test_a_last_window_in_the_padding_is_pooled() -> None:
    attrs = {"pooling_type": "max", "ksize": [2], "strides": [2], "paddings": [1],
             "ceil_mode": True}  # fmt: skip
    attrs |= {name: attrs[name] * 2 for name in ("ksize", "strides", "paddings")}
    graph = parse(
        "graph main {\n  feed x: f32[1, 2, 7, 5]\n"
        f"  (Out=y: f32[1, 2, 5, 4]) = pool2d(X=x) {attrs}\n  return y\n}}\n"
    )
    x = np.random.default_rng(0).random((1, 2, 7, 5), np.float32)
    (op,) = graph.ops()
    (result,) = session(onnx_model(graph, {})).run(None, {"x": x})
    np.testing.assert_array_equal(result, op.defn.numpy(x))
