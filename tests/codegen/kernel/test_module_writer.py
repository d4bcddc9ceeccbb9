"""Kernels read host arrays only if they have the sizes that the kernels were written for."""

import numpy as np
import pytest

import runtime
from compiler.codegen.kernel.module_writer import expect_shape
from compiler.codegen.native.host import detected
from compiler.driver import compile_graph
from compiler.ir.text.printer import parse
from compiler.options import Options
from runtime.errors import StepError

native = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

SLICES = """
graph main {
  feed x: f32[6, 2]
  feed o: i64[3]
  feed first: i64[2, 1]
  feed length: i64[2, 1]
  feed g: f32[3, 2]
  (X@GRAD=y: f32[6, 2]) = sequence_slice_grad(X=x, X_lod=[o], Offset=first, Length=length, Out@GRAD=g)
  return y
}
"""
SLICE = """
graph main {
  feed x: f32[6, 2]
  feed o: i64[3]
  feed first: i64[2, 1]
  feed length: i64[2, 1]
  (Out=y: f32[?, 2]) = sequence_slice(X=x, X_lod=[o], Offset=first, Length=length)
  return y
}
"""
EXPANDED = """
graph main {
  feed x: f32[2, 3]
  feed times: i32[2]
  (Out=y: f32[2, ?]) = expand(X=x, ExpandTimes=times) {'expand_times': [1, -1]}
  (Out=z: f32[2, ?]) = tanh(X=y)
  return z
}
"""


def run(text: str, **feed: object) -> np.ndarray:
    """Run a graph with checks of bounds; lists are int64."""
    module = compile_graph(parse(text), target="native", options=Options(check=1)).module
    return runtime.load(module)({name: np.asarray(value) for name, value in feed.items()})[0]


@native
def test_lengths_must_fit_the_rows_of_the_gradient() -> None:
    inputs = {"x": np.zeros((6, 2), "f4"), "o": [0, 3, 6], "first": [[1], [0]]}
    gradient = np.arange(6, dtype=np.float32).reshape(3, 2)
    result = run(SLICES, **inputs, length=[[1], [2]], g=gradient)
    np.testing.assert_array_equal(result[[1, 3, 4]], gradient)
    with pytest.raises(StepError, match=r"do not fit .* 2 indices were computed, expected 3"):
        run(SLICES, **inputs, length=[[1], [1]], g=gradient)


@native
def test_an_offset_and_a_length_whose_sum_overflows_reach_beyond_a_sequence() -> None:
    inputs = {"x": np.zeros((6, 2), "f4"), "o": [0, 3, 6]}
    with pytest.raises(StepError, match="reach beyond"):
        run(SLICE, **inputs, first=[[2**63 - 1], [0]], length=[[2], [2]])


def test_host_results_must_have_the_sizes_that_device_kernels_take_for_granted() -> None:
    source = compile_graph(parse(EXPANDED), target="triton").module.source
    assert "expect_shape(y.shape, (2, size), 'y')" in source
    expect_shape((2, 6), (2, 6), "y")
    expect_shape((2, 6), (2, None), "y")
    for found in ((0, 6), (2,), (2, 6, 1)):
        with pytest.raises(ValueError, match=r"'y' has the shape .* need \(2, 'any'\)"):
            expect_shape(found, (2, None), "y")
