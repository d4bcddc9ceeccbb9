"""Random networks: each pass alone, and the pipeline whatever is left out, keep every number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime
from compiler.codegen.numpy import NumpyTarget
from compiler.errors import PassOrderError
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import check_order, run_passes
from compiler.passes.pipeline import OPTIONAL, named, pipeline
from tests.ir.random_graphs import arrays
from tests.passes.random_networks import networks

NAMES = [pass_.name for pass_ in OPTIONAL if pass_.preserves]
SIZE = 3


def numbers(graph, feed, state):
    """What a graph returns, and the state it leaves behind, by name."""
    left = {name: array.copy() for name, array in state.items()}
    results = run(graph, feed, left)
    return dict(enumerate(results)) | {name: left[name] for name in left if name in state}


def close(got, want):
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4, err_msg=str(name))


def made_for(graph, seed=1):
    return arrays(graph.feeds(), seed, SIZE), arrays(graph.params(), seed + 1, SIZE)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(networks(), st.booleans())
def test_a_pass_alone_keeps_every_number(name, graph, has_params):
    feed, state = made_for(graph)
    want = numbers(parse(show(graph)), feed, state)
    params = dict(state)
    passes = named(["schedule", name])
    context = Context(params if has_params else None, memory_budget="60%")
    run_passes(graph, passes[not passes[1].requires :], context)
    close(numbers(parse(show(graph)), feed, params), want)


@settings(max_examples=50)
@given(networks(), st.booleans(), st.sets(st.sampled_from(NAMES)), st.sampled_from([None, "60%"]))
def test_disabled_passes_change_no_number(graph, has_params, left_out, budget):
    feed, state = made_for(graph)
    want = numbers(parse(show(graph)), feed, state)
    params = {name: array.copy() for name, array in state.items()}
    context = Context(params if has_params else None, memory_budget=budget)
    options = Options(disable=frozenset(left_out), memory_budget=budget)
    run_passes(graph, pipeline(options), context)
    results = runtime.load(NumpyTarget().emit(freeze(graph)), params=params)(feed)
    close(dict(enumerate(results)) | {name: params[name] for name in state}, want)


def legal(names):
    """The passes of these that may run in this order; the others are refused for a missing fact."""
    kept = []
    for each in named(names):
        try:
            check_order([*kept, each])
        except PassOrderError as error:
            assert f"pass {each.name!r} requires ORDERED" in str(error)
        else:
            kept.append(each)
    return kept


@settings(max_examples=50)
@given(networks(), st.booleans(), st.lists(st.sampled_from(NAMES), max_size=24))
def test_every_legal_order_keeps_every_number_and_others_are_rejected(graph, has_params, names):
    feed, state = made_for(graph)
    want = numbers(parse(show(graph)), feed, state)
    params = {name: array.copy() for name, array in state.items()}
    context = Context(params if has_params else None, memory_budget="60%")
    run_passes(graph, legal(names), context)
    close(numbers(parse(show(graph)), feed, params), want)
    results = runtime.load(NumpyTarget().emit(freeze(graph)), params=params)(feed)
    close(dict(enumerate(results)) | {name: params[name] for name in state}, want)
