"""Orders of kernels: every one is legal, peaks are those of real lives, the best is taken."""

import random

import pytest

from compiler.ir.analysis.verifier import verify
from compiler.ir.text.printer import parse
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.memory.schedules import Kernels
from compiler.passes.pipeline import named
from tests.ir.random_graphs import random_graph


def kernels_of(seed):
    """The kernels of a random graph."""
    graph = random_graph(random.Random(seed), 5 + seed % 25)
    run_passes(graph, named(["fuse_pointwise"]), Context())
    return Kernels(graph, 32)


def orders_of(kernels):
    """All orders that `schedule` compares."""
    first = [kernels.original(), kernels.greedy(), kernels.backward()]
    return first + [kernels.deferred(order) for order in first]


@pytest.mark.parametrize("seed", range(30))
def test_every_order_is_one_the_graph_may_have(seed):
    kernels = kernels_of(seed)
    for order in orders_of(kernels):
        kernels.graph.reorder(kernels.ops(order))
        verify(kernels.graph)


@pytest.mark.parametrize("seed", range(30))
def test_schedule_takes_none_that_needs_more_than_the_written_one(seed):
    kernels = kernels_of(seed)
    before = kernels.peak(kernels.original())
    run_passes(kernels.graph, named(["schedule"]), Context())
    after = Kernels(kernels.graph, 32)
    assert after.peak(after.original()) <= before


def test_branches_of_a_tree_are_scheduled_depth_first():
    lines = [f"  (Out=a{i}: f32[N, 64]) = mul(X=x, Y=w)" for i in range(4)]
    lines += [f"  (Out=b{i}: f32[N, 1]) = mul(X=a{i}, Y=v)" for i in range(4)]
    text = "\n".join(["graph main {", "  feed x: f32[N, 8]", "  param w: f32[8, 64]",
                      "  param v: f32[64, 1]", *lines, "  return b0, b1, b2, b3", "}"])  # fmt: skip
    kernels = Kernels(parse(text), 10)
    wide = 10 * 64 * 4
    assert kernels.peak(kernels.original()) >= 4 * wide
    for order in (kernels.greedy(), kernels.backward(), kernels.deferred(kernels.original())):
        assert kernels.peak(order) < 2 * wide


def test_in_place_values_count_once():
    text = """graph main {
      feed x: f32[N, 8]
      param w: f32[8, 8]
      (Out=a: f32[N, 8]) = mul(X=x, Y=w)
      (Out=b: f32[N, 8]) = relu(X=a)
      return b
    }"""
    kernels = Kernels(parse(text), 10)
    assert kernels.peak(kernels.original()) == 10 * 8 * 4
