"""Memory that is spoilt when no step needs it: right plans never notice, wrong ones show at once."""

from dataclasses import replace

import numpy as np
import pytest

import fluid
import runtime
from compiler import Options
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.freeze import freeze
from compiler.ir.text.parser import parse
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from compiler.plan import Plan
from tests.support.compiled_networks import Subject, initial_state
from tests.support.nets import timed

CHAIN = """
graph main {{
  feed x: {type}[4, 4]
  (Out=b: {type}[4, 4] @s1) = scale(X=x) {{'scale': 3.0}}
  (Out=a: {type}[4, 4] @s0) = scale(X=x) {{'scale': 2.0}}
  (Out=c: {type}[4, 4] @s2) = elementwise_add(X=a, Y=b)
  return c
}}
"""


def plan(type: str) -> Plan:
    return freeze(parse(CHAIN.format(type=type)))


def computed(plan: Plan, dtype: str) -> np.ndarray:
    module = NumpyTarget().emit(plan, poison=True)
    (result,) = runtime.load(module)({"x": np.ones((4, 4), dtype)})
    return result


@pytest.mark.parametrize(
    ("type", "dtype", "seen"),
    [("f32", "float32", np.isnan), ("i64", "int64", lambda sums: sums < -(2**62))],
)
def test_early_reuse_of_memory_is_detected(type: str, dtype: str, seen) -> None:
    right = plan(type)
    assert (computed(right, dtype) == 5).all()
    short = replace(right.buffers[0], stop=2)  # `a` is read in step 2
    wrong = replace(right, buffers=(short, *right.buffers[1:]))
    assert seen(computed(wrong, dtype)).all()


def test_poisoned_values_are_listed_in_the_source() -> None:
    source = NumpyTarget().emit(plan("f32"), poison=True).source
    assert "a.fill(nan)" in source and "from math import inf, nan" in source
    assert "c.fill" not in source  # it is returned
    assert "fill" not in NumpyTarget().emit(plan("f32")).source


def test_scratch_before_a_product_that_is_written_as_loops_is_spoilt() -> None:
    graph = parse("""graph main {
  feed x: f32[2, 1, 3, 3]
  feed o: f32[2, 4, 2, 3]
  feed w: f32[1, 1, 2, 1]
  feed dy: f32[2, 1, 2, 3]
  (Input@GRAD=dx: f32[2, 1, 3, 3]) = deformable_conv_v1_grad(Input=x, Offset=o, Filter=w, Output@GRAD=dy)
  return dx
}
""")
    run_passes(graph, pipeline(Options(), NativeTarget()), Context())
    assert "t0.fill(nan)" in NativeTarget().emit(freeze(graph), poison=True).source


@pytest.mark.parametrize("name", ["lenet_bn", "word2vec", "transformer_encoder"])
def test_training_and_inference_never_notice(name: str) -> None:
    recorded = timed.model(fluid, name)
    feed = timed.draw(name, np.random.RandomState(0), 3)
    state = initial_state(recorded)
    training = Subject(recorded.main, feed, recorded.loss.name, state, constant=False)
    inference = Subject(recorded.test, feed, recorded.output.name, state, constant=True)
    for subject in (training, inference):
        plain, spoilt = (subject.load(Options(check=check)) for check in (0, 1))
        for _ in range(3):
            np.testing.assert_array_equal(*(each.executable(feed)[0] for each in (plain, spoilt)))
        for key, array in plain.state.items():
            np.testing.assert_array_equal(spoilt.state[key], array)
