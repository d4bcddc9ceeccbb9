"""Running sums and sorting on the device: parts with a start each, rows sorted at once."""

import numpy as np
import pytest

import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.text.printer import parse
from compiler.ops.math import sort
from compiler.support.thresholds import lowered
from tests.codegen.test_triton import compare, module_of

pytestmark = pytest.mark.device

SUMS = """graph main {{
  feed x: f32[{shape}]
  (Out=y: f32[{shape}]) = cumsum(X=x) {{'axis': 1, 'exclusive': {exclusive}, 'reverse': {reverse}}}
  return y
}}
"""


@pytest.mark.parametrize("shape", ["2, 7, 3", "1, 300, 2", "3, N", "2, N, 5"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (True, True)])
def test_running_sums_of_rows_of_any_length(shape, exclusive, reverse):
    compare(SUMS.format(shape=shape, exclusive=exclusive, reverse=reverse), size=1100, steps=1)


def ordered(text, **feeds):
    """Outputs of a graph of one op on the device."""
    module = module_of(text)
    assert module.kernels
    return runtime.load(module, runtime.CUDAPlace(0))(feeds)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "f64"])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(dtype, descending):
    numpy = {"f32": "float32", "f16": "float16", "i32": "int32", "f64": "float64"}[dtype]
    x = np.random.default_rng(1).integers(-6, 6, (3, 37)).astype(numpy)
    if dtype == "f32":
        x[0, :5] = [np.inf, np.nan, -0.0, 0.0, -np.inf]
    text = f"""graph main {{
  feed x: {dtype}[3, 37]
  (Out=y: {dtype}[3, 37], Indices=i: i64[3, 37]) = argsort(X=x) {{'descending': {descending}}}
  return y, i
}}
"""
    values, places = ordered(text, x=x)
    want = np.argsort(-x if descending else x, axis=1, kind="stable")
    if descending and dtype == "f32":
        want[0] = [1, *(i for i in want[0] if i != 1)]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


def test_the_first_twenty_along_a_middle_axis():
    x = np.random.default_rng(2).standard_normal((2, 45, 3)).astype(np.float32)
    text = """graph main {
  feed x: f32[2, 45, 3]
  (Out=y: f32[2, 20, 3], Indices=i: i64[2, 20, 3]) = top_k_v2(X=x) {'k': 20, 'axis': 1}
  return y, i
}
"""
    values, places = ordered(text, x=x)
    want = np.argsort(-x, axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


@pytest.mark.parametrize(("size", "why"), [(70000, "rows of more than 65536"), (60000, "")])
def test_rows_too_long_to_count_in_are_the_hosts(size, why):
    graph = parse(f"""graph main {{
  feed x: f32[2, {size}]
  (Out=y: f32[2, {size}], Indices=i: i64[2, {size}]) = argsort(X=x)
  return y
}}
""")
    (op,) = graph.ops()
    assert why in TritonTarget().supports(op)
    assert bool(why) == bool(TritonTarget().supports(op))


WITH_NAN = np.float32([[3, np.nan, 1, np.nan, 7, -np.inf, np.inf, 2], [np.nan] * 8])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("descending", [False, True])
def test_nan_has_a_rank_of_its_own(dtype, descending):
    x = WITH_NAN.astype({"f32": np.float32, "f64": np.float64}[dtype])
    text = f"""graph main {{
  feed x: {dtype}[2, 8]
  (Out=y: {dtype}[2, 8], Indices=i: i64[2, 8]) = argsort(X=x) {{'descending': {descending}}}
  return y, i
}}
"""
    with lowered({"sorted_values": 4}):  # longer rows count ranks
        values, places = ordered(text, x=x)
    want = sort.argsort_along(x, 1, descending)
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 1))


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter
@pytest.mark.parametrize("largest", [False, True])
def test_the_first_values_may_be_nan(largest):
    text = f"""graph main {{
  feed x: f32[2, 8]
  (Out=y: f32[2, 7], Indices=i: i64[2, 7]) = top_k_v2(X=x) {{'k': 7, 'largest': {largest}}}
  return y, i
}}
"""
    values, places = ordered(text, x=WITH_NAN)
    want = sort.top_values(WITH_NAN, 7, 1, largest)
    np.testing.assert_array_equal(places, want["Indices"])
    np.testing.assert_array_equal(values, want["Out"])


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter
@pytest.mark.parametrize("op", ["arg_max", "arg_min"])
def test_the_first_nan_is_maximum_and_minimum(op):
    text = f"""graph main {{
  feed x: f32[2, 8]
  (Out=y: i64[2]) = {op}(X=x) {{'axis': 1}}
  return y
}}
"""
    np.testing.assert_array_equal(ordered(text, x=WITH_NAN)[0], [1, 0])
