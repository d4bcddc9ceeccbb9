"""What is special about sorting, the largest of each row, and running sums."""

import re

import numpy as np
import pytest

from compiler.codegen.native.machine import AVX512
from compiler.codegen.native.target import NativeTarget
from compiler.errors import CompileError, ShapeError
from compiler.freeze import freeze
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import find
from compiler.ir.program import OpDesc
from compiler.ir.text.printer import parse
from compiler.ir.types import DType, TensorType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline

ROW = np.array([[1.0, 3.0, 3.0, 2.0]])
THREE = np.array([3], np.int32)


def infer(kind, shape, **attrs):
    return find(kind)(attrs).infer_types({"X": TensorType(DType.FP32, shape)})


def test_top_k_of_too_few_columns():
    with pytest.raises(ShapeError, match=re.escape("X is f32[3, 4], expected at least k=5")):
        infer("top_k", (3, 4), k=5)
    assert infer("top_k", (3, UNKNOWN), k=5)["Indices"] == TensorType(DType.INT64, (3, 5))


@pytest.mark.parametrize("kind", ["top_k", "top_k_v2"])
def test_k_that_only_data_decides(kind):
    types = {"X": TensorType(DType.FP32, (1, 4)), "K": TensorType(DType.INT32, (1,))}
    assert find(kind)({}).infer_types(types)["Out"].shape == (1, UNKNOWN)
    result = find(kind)({}).evaluate({"X": ROW, "K": THREE})
    np.testing.assert_array_equal(result["Out"], [[3.0, 3.0, 2.0]])
    with pytest.raises(ValueError, match="K is 3, expected 1 to 2"):
        find(kind)({}).evaluate({"X": ROW[:, :2], "K": THREE})


def test_argsort_is_stable():
    result = find("top_k")({"k": 3}).evaluate({"X": ROW})
    np.testing.assert_array_equal(result["Indices"], [[1, 2, 3]])
    result = find("argsort")({"descending": True}).evaluate({"X": ROW})
    np.testing.assert_array_equal(result["Indices"], [[1, 2, 3, 0]])
    result = find("argsort")({}).evaluate({"X": ROW})
    np.testing.assert_array_equal(result["Indices"], [[0, 3, 1, 2]])
    assert find("arg_max")({"axis": 1}).evaluate({"X": ROW})["Out"] == [1]


@pytest.mark.parametrize("kind", ["argsort", "arg_max", "cumsum", "top_k_v2"])
def test_axis_beyond_the_shape(kind):
    with pytest.raises(ShapeError, match=re.escape(f"{kind}: X is f32[3, 4], which has no axis 2")):
        infer(kind, (3, 4), axis=2)


def test_indices_are_integers():
    with pytest.raises(ShapeError, match=re.escape("arg_max: Out is f32[3, 4], expected element")):
        infer("arg_max", (3, 4), axis=0, dtype=DType.FP32.code)


def test_gradient_of_a_running_sum_runs_the_other_way():
    op = OpDesc("cumsum", {"X": ["x"]}, {"Out": ["y"]}, {"axis": 0, "exclusive": True})
    (back,) = find("cumsum")(op.attrs).grad_ops(op, lambda name: name + "@GRAD")
    assert back.attrs == {"axis": 0, "exclusive": True, "reverse": True}
    with pytest.raises(CompileError, match="no gradient with 'flatten'"):
        find("cumsum")({"flatten": True}).grad_ops(op, str)


@pytest.mark.parametrize("op", ["top_k(X=x) {'k': 100}", "argsort(X=x)"])
def test_a_cpu_sorts_long_rows_in_native_code(op):
    """Counting the ranks of a row of 30,522 values takes a hundred times as long as NumPy's sort."""
    count = 100 if "top_k" in op else 100_000
    graph = parse(f"""graph main {{
  feed x: f32[2, 100000]
  (Out=v: f32[2, {count}], Indices=i: i64[2, {count}]) = {op}
  return v, i
}}
""")
    target = NativeTarget(AVX512)
    run_passes(graph, pipeline(Options(), target), Context())
    writer = target.module_writer(freeze(graph))
    assert not writer.fallbacks
    assert [call.name for call in writer.costs] == ["first_values"]
