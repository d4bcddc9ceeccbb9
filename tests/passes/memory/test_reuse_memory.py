"""What is written over later lies in no other value's memory while that is still read."""

from compiler.ir.text.printer import parse
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named

VIEW_WRITTEN_OVER = """graph main {
  feed x: f32[N, 4]
  feed go: bool[1]
  (Out=a: f32[N, 4]) = elementwise_max(X=x, Y=x)
  (Out=b: f32[N, 2, 2], XShape=s: f32[0, N, 4]) = reshape2(X=a) {'shape': [0, 2, 2]}
  (Out=c: f32[N, 4]) = reshape(X=b) {'shape': [-1, 4]}
  (Written=[c#1: f32[N, 4] over c]) = if(Cond=[go], Captured=[c]) graph block_1 {
    feed c: f32[N, 4]
    (Out=c#1: f32[N, 4]) = sigmoid(X=c)
    return c#1
  }
  (Out=y: f32[N, 4]) = relu(X=a)
  return c#1, y
}
"""
"""The smallest program that `fluid bisect` left of number 673 of `tools/verify/random_programs.py`."""


def test_a_view_that_is_written_over_has_memory_of_its_own() -> None:
    graph = parse(VIEW_WRITTEN_OVER)
    run_passes(graph, named(["schedule", "reuse_memory"]), Context())
    slots = {var.label: var.slot for var in graph.vars()}
    assert slots["c"] == slots["c#1"] != slots["a"]
