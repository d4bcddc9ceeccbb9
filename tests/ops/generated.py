"""Compares a generated module with the interpreter on feeds of several sizes."""

from collections.abc import Mapping

import numpy as np

import runtime
from compiler.interpret import run
from compiler.ir.text.printer import parse
from tests.codegen.support import module_of


def assert_matches_reference(text: str, *sizes: Mapping[str, int]) -> None:
    """Run the module of a graph for each choice of named sizes, twice, results and state."""
    graph = parse(text)
    draw = np.random.default_rng(0)
    state = {var.name: draw.uniform(0.5, 1.5, var.type.shape) for var in graph.params()}
    mine, theirs = ({n: v.astype(np.float32) for n, v in state.items()} for _ in range(2))
    compute = runtime.load(module_of(text), params=mine)
    for chosen in [*sizes, *sizes]:
        shapes = {var.name: var.type.at(dict(chosen)) for var in graph.feeds()}
        feed = {n: draw.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
        for got, want in zip(compute(feed), run(graph, feed, theirs), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-5, atol=1e-6)
