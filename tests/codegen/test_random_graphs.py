"""Random graphs: generated code agrees with the interpreter, whatever passes are left out."""

import random

import numpy as np
import pytest

import runtime
from compiler.codegen.numpy import NumpyTarget
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import OPTIONAL, pipeline
from tests.ir.random_graphs import arrays, random_graph

NAMES = [pass_.name for pass_ in OPTIONAL]


def computed(graph, options, feed, state):
    """Results of a graph's generated code; `state` is updated."""
    run_passes(graph, pipeline(options), Context(memory_budget=options.memory_budget))
    return runtime.load(NumpyTarget().emit(freeze(graph)), params=state)(feed)


@pytest.mark.parametrize("seed", range(80))
def test_generated_code_of_random_graphs_matches_the_interpreter(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, 4 + seed % 25, labels=False)
    left_out = frozenset(name for name in NAMES if rng.random() < 0.3)
    feed, state = arrays(graph.feeds(), seed, 5), arrays(graph.params(), seed + 1, 5)
    theirs = {name: array.copy() for name, array in state.items()}
    want = run(parse(show(graph)), feed, theirs)
    budget = rng.choice([None, "70%", 1])
    got = computed(graph, Options(disable=left_out, memory_budget=budget), feed, state)
    for var, a, b in zip(graph.results, got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{var.label}, {left_out}")
    for name, array in theirs.items():
        np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
