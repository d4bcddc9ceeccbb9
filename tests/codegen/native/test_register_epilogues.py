"""Products of equal epilogues share their kernels; those that differ in any bit do not."""

import numpy as np
import pytest

import runtime
from compiler.driver import compile_graph
from compiler.interpret import run
from compiler.ir.text.printer import parse

TEXT = """
graph main {{
  feed x: f32[4, 16]
  feed a: f32[16, 32]
  feed b: f32[16, 32]
  (Out=p: f32[4, 32]) = mul(X=x, Y=a)
  (Out=first: f32[4, 32]) = leaky_relu(X=p) {{'alpha': {first}}}
  (Out=q: f32[4, 32]) = mul(X=x, Y=b)
  (Out=second: f32[4, 32]) = leaky_relu(X=q) {{'alpha': {second}}}
  return first, second
}}
"""


@pytest.mark.parametrize(
    ("first", "second", "kernels"),
    [(0.0, -0.0, 2), (-0.0, 0.0, 2), (1.0, 0.5, 2), (0.5, 0.5, 1), (-0.0, -0.0, 1)],
)
def test_constants_of_epilogues_are_compared_with_their_signs(
    first: float, second: float, kernels: int
) -> None:
    text = TEXT.format(first=first, second=second)
    module = compile_graph(parse(text), target="native").module
    assert len(module.kernels_ir) == kernels
    feed = {"x": np.ones((4, 16), "f4")} | {name: -np.ones((16, 32), "f4") for name in "ab"}
    results, expected = runtime.load(module)(feed), run(parse(text), feed, {})
    for actual, reference in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(reference))
        np.testing.assert_array_equal(actual, reference)
