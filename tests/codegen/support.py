"""Runs graphs through passes, plan, module and step."""

import numpy as np

import runtime
from compiler.codegen.numpy import NumpyTarget
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.observers import made_up
from compiler.passes.pipeline import pipeline


def module_of(graph, options=None, params=None):
    """The module of a graph (or of its text) after the passes options leave on."""
    graph = parse(graph) if isinstance(graph, str) else graph
    run_passes(graph, pipeline(options or Options()), Context(params))
    return NumpyTarget().emit(freeze(graph))


def inputs(graph, size=3):
    """Made-up feeds and state: all different, positive, labels zero."""
    feed = {var.name: made_up(var.type, i, size) for i, var in enumerate(graph.feeds())}
    state = {var.name: made_up(var.type, 50 + i, size) for i, var in enumerate(graph.params())}
    return feed, state


def compare(text, options=None, size=3, steps=2):
    """Hold generated code against the interpreter: results and state, over several steps."""
    graph = parse(text)
    feed, state = inputs(graph, size)
    mine, theirs = ({name: array.copy() for name, array in state.items()} for _ in range(2))
    compute = runtime.load(module_of(text, options), params=mine)
    for _ in range(steps):
        got, want = compute(feed), run(graph, feed, theirs)
        for var, a, b in zip(graph.results, got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6, err_msg=var.label)
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-5, atol=1e-6, err_msg=name)
    return compute
