"""NHWC images inside a graph: the same results, and few transposes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluid
import runtime
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.permuted_values import is_reshapable
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named, pipeline
from tests.passes.random_pictures import random_pictures

pytestmark = pytest.mark.device

SHAPE = (2, 4, 9, 11)


def graph_of(seed, train):
    """A random network as a graph, a batch for it, and its state from the startup program."""
    main, startup, fetched = random_pictures(seed, train)
    graph = to_graph(main, {"picture": SHAPE}, [var.name for var in fetched])
    scope, random = fluid.Scope(), np.random.RandomState(seed % 2**32)
    with fluid.scope_guard(scope):
        fluid.Executor(fluid.CPUPlace()).run(startup)
    state = {var.name: np.array(scope.find_var(var.name).get_tensor()) for var in graph.params()}
    return graph, {"picture": random.standard_normal(SHAPE).astype("float32")}, state


def numbers(graph, feed, state):
    """What a graph returns, and the state it leaves behind."""
    left = {name: array.copy() for name, array in state.items()}
    return [*run(graph, feed, left), *left.values()]


def assert_close(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_random_networks_keep_every_number(seed, train, has_params):
    graph, feed, state = graph_of(seed, train)
    want = numbers(parse(show(graph)), feed, state)
    run_passes(
        graph, named(["layout", "merge_transposes"]), Context(dict(state) if has_params else None)
    )
    assert_close(numbers(parse(show(graph)), feed, state), want)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("off", [(), ("layout",)], ids=["channels last", "as written"])
def test_random_networks_run_on_the_device(seed, off):
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    graph, feed, state = graph_of(seed, train=True)
    want = numbers(parse(show(graph)), feed, state)
    target, mine = TritonTarget(), {name: array.copy() for name, array in state.items()}
    run_passes(graph, pipeline(Options(disable=frozenset(off)), target), Context())
    compute = runtime.load(target.emit(freeze(graph)), runtime.CUDAPlace(0), mine)
    assert_close([*compute(feed), *mine.values()], want)


def with_constant_params(seed):
    """An inference network with constant weights, compiled for the device."""
    graph, feed, state = graph_of(seed, train=False)
    want = numbers(parse(show(graph)), feed, state)[: len(graph.results)]
    params = {name: array.copy() for name, array in state.items()}
    return graph, feed, params, want


@pytest.mark.parametrize("seed", [1, 8, 27])
def test_constant_filters_are_transposed_ahead(seed):
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    graph, feed, params, want = with_constant_params(seed)
    target = TritonTarget()
    run_passes(graph, pipeline(Options(), target), Context(params))
    assert [op for op in graph.ops() if op.attrs.get("filter_format") == "HWIO"]
    assert not [op for op in graph.ops() if op.kind == "transpose" and op["X"].role == "param"]
    assert_close(runtime.load(target.emit(freeze(graph)), runtime.CUDAPlace(0), params)(feed), want)


def test_the_host_reads_transposed_filters_too():
    graph, feed, params, want = with_constant_params(1)
    run_passes(graph, named(["layout", "fold_constants"]), Context(params))
    assert_close(runtime.load(NumpyTarget().emit(freeze(graph)), params=params)(feed), want)


def test_numpy_code_leaves_images_as_written():
    assert "layout" not in [pass_.name for pass_ in pipeline(Options())]
    assert "layout" in [pass_.name for pass_ in pipeline(Options(), TritonTarget())]


def test_dropout_takes_nhwc_unless_seeded():
    text = """graph main {
  feed x: f32[N, 16, 32, 32]
  param v: f32[64, 16, 3, 3]
  param w: f32[64, 64, 3, 3]
  (Output=a: f32[N, 64, 32, 32]) = conv2d(Input=x, Filter=v) {'paddings': [1, 1]}
  (Out=d: f32[N, 64, 32, 32], Mask=m: u8[N, 64, 32, 32]) = dropout(X=a) SEED
  (Output=b: f32[N, 64, 32, 32]) = conv2d(Input=d, Filter=w) {'paddings': [1, 1]}
  (Out=s: f32[1]) = mean(X=b)
  return s
}
"""
    turned = []
    for seed in ("", "{'fix_seed': True, 'seed': 3}"):
        graph, target = parse(text.replace("SEED", seed)), TritonTarget()
        run_passes(graph, pipeline(Options(), target), Context())
        turned.append(show(graph).count("NHWC"))
    assert turned == [2, 0]


def test_on_a_cpu_a_lone_convolution_is_channels_last_too():
    """In the original layout it takes a hundred times as long, and two transposes are cheap."""
    text = """graph main {
  feed x: f32[2, 8, 16, 16]
  param w: f32[8, 8, 3, 3]
  (Output=y: f32[2, 8, 16, 16]) = conv2d(Input=x, Filter=w) {'paddings': [1, 1]}
  return y
}
"""
    layouts = {}
    for target in (NativeTarget(), TritonTarget()):
        graph = parse(text)
        run_passes(graph, pipeline(Options(), target), Context())
        layouts[target.name] = sum(op.kind == "transpose" for op in graph.ops())
    assert layouts == {"native": 2, "triton": 0}


def test_a_bias_without_axes_is_not_reshaped() -> None:
    assert not is_reshapable((), (1, 1, 1))
    assert is_reshapable((5,), (5, 1, 1))
