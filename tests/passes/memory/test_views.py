"""Parts in the memory of their whole: nothing moves, faults are refused, less is alive."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluid
import runtime
from compiler.codegen.numpy import NumpyTarget
from compiler.driver import compile_stages
from compiler.errors import VerifyError
from compiler.freeze import freeze
from compiler.interpret import run
from compiler.ir.analysis.allocation import check_stored
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph
from compiler.ir.region import Region, are_disjoint, end, strides
from compiler.ir.text.printer import parse, show
from compiler.ir.types import DType, TensorType
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.memory.reuse_memory import ReuseMemory
from compiler.passes.pipeline import named
from tests.ir.random_graphs import arrays
from tests.support.nets import zoo

N = Dim.named("N")


class _Cutter:
    """Grows a graph that cuts, joins and reshapes; `pool` are the vars there are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.graph = rng, Graph()
        self.pool = [self.graph.feed("x", rows(4)), self.graph.feed("y", rows(6))]
        for _ in range(rng.randint(3, 14)):
            rng.choice([self.join, self.cut, self.take, self.bend, self.work, self.add])()
        created = [var for var in self.pool if self.graph.producer(var)]
        self.graph.results = rng.sample(created, min(len(created), rng.randint(1, 4)))

    def var(self, columns: int, count=N):
        return self.graph.fresh("v", TensorType(DType.FP32, (count, columns)))

    def pick(self, **sizes):
        fits = [var for var in self.pool if all(var.type.shape[1] >= s for s in sizes.values())]
        return self.rng.choice(fits)

    def put(self, kind, inputs, outputs, attrs=None):
        self.graph.op(kind, inputs, outputs, attrs or {}, last=True)
        self.pool += [var for vars in outputs.values() for var in vars]

    def join(self) -> None:
        inputs = [self.pick() for _ in range(self.rng.randint(1, 3))]
        columns = sum(var.type.shape[1] for var in inputs)
        if columns < 60:
            self.put("concat", {"X": inputs}, {"Out": [self.var(columns)]}, {"axis": 1})

    def cut(self) -> None:
        whole = self.pick(least=2)
        first = self.rng.randint(1, whole.type.shape[1] - 1)
        sizes = [first, whole.type.shape[1] - first]
        created = [self.var(size) for size in sizes]
        self.put("split", {"X": [whole]}, {"Out": created}, {"sections": sizes, "axis": 1})

    def take(self) -> None:
        whole = self.pick(least=2)
        last = whole.type.shape[1]
        start = self.rng.randint(0, last - 1)
        attrs = {"axes": [1], "starts": [start], "ends": [last]}
        self.put("slice", {"Input": [whole]}, {"Out": [self.var(last - start)]}, attrs)

    def bend(self) -> None:
        inputs = self.pick()
        columns = inputs.type.shape[1]
        type = TensorType(DType.FP32, (N, 1, columns))
        between = self.graph.fresh("b", type)
        self.graph.op("unsqueeze", {"X": [inputs]}, {"Out": [between]}, {"axes": [1]}, last=True)
        self.put("squeeze", {"X": [between]}, {"Out": [self.var(columns)]}, {"axes": [1]})

    def work(self) -> None:
        inputs = self.pick()
        kind = self.rng.choice(["relu", "tanh", "softmax", "square"])
        self.put(kind, {"X": [inputs]}, {"Out": [self.var(inputs.type.shape[1])]})

    def add(self) -> None:
        one = self.pick()
        other = self.rng.choice([var for var in self.pool if var.type == one.type])
        created = self.var(one.type.shape[1])
        self.put("elementwise_add", {"X": [one], "Y": [other]}, {"Out": [created]})


def rows(columns: int) -> TensorType:
    return TensorType(DType.FP32, (N, columns))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9), st.booleans())
def test_views_have_the_values_of_copies(seed, fused):
    graph = _Cutter(random.Random(seed)).graph
    feed = arrays(graph.feeds(), seed, 3)
    want = run(graph, feed, {})
    passes = ["eliminate_dead", *["fuse_pointwise"] * fused, "schedule", "reuse_memory"]
    run_passes(graph, named(passes), Context())
    labelled = parse(show(graph))
    check_stored(labelled)
    created = runtime.load(NumpyTarget().emit(freeze(graph)), params={}, poison=True)(feed)
    for interpreted, computed, wanted in zip(run(labelled, feed, {}), created, want, strict=True):
        np.testing.assert_array_equal(interpreted, wanted)
        np.testing.assert_allclose(computed, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["inception_v1", "densenet121", "unet"])
def test_training_has_the_same_bits_in_less_memory(name, monkeypatch):
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, **settings)
    scope = fluid.Scope()
    fluid.Executor().run(recorded.startup, scope=scope)
    feed = zoo.draw(name, np.random.RandomState(0), 3, **settings)
    results = []
    for parts in (False, True):
        monkeypatch.setattr(ReuseMemory.__init__, "__defaults__", (parts,))
        stages = compile_stages(recorded.main, feed=list(feed), fetch=[recorded.loss])
        state = {key: array.copy() for key, array in scope.arrays().items()}
        loss = runtime.load(stages.module, params=state, poison=True)(feed)[0]
        results.append((loss, state, bytes_at_once(stages.plan)))
    (loss, state, before), (other, moved, after) = results
    np.testing.assert_array_equal(other, loss)
    for key in state:
        np.testing.assert_array_equal(moved[key], state[key], err_msg=key)
    assert after <= before
    assert after < before or name == "unet"


def bytes_at_once(plan):
    """The most bytes of buffers alive in one step, for three rows."""
    lives = runtime.loader.buffer_lifetimes(plan.buffers, dict.fromkeys(plan.dims, 3))
    return max(sum(x.size for x in lives if x.start <= s < x.stop) for s in range(len(plan.steps)))


JOINED = """graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=a: f32[N, 4] @s0[0, 16, 32]) = tanh(X=x)
  (Out=b: f32[N, 4] @s0[16, 16, 32]) = relu(X=x)
  (Out=c: f32[N, 8] @s0) = concat(X=[a, b]) {'axis': 1}
  (Out=d: f32[N, 8] @s1) = relu(X=c)
  return d
}
"""


def test_valid_views_pass_the_check():
    check_stored(parse(JOINED))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("s0[16, 16, 32]", "s0[8, 16, 32]", "slot 0 holds 'a' and 'b', which live at once"),
        ("s0[16, 16, 32]", "s0[16]", "either may be larger"),
        ("a, b]) {'axis': 1}", "b, a]) {'axis': 1}", "slot 0 holds 'a' and 'c', which live at once"),
        ("tanh(X=x)", "mul(X=x, Y=w)", "'a' is strided, which one of its ops does not support"),
        ("@s1) = relu", "@s0[4]) = relu", "slot 0 holds 'c' and 'd', which live at once"),
    ],
)  # fmt: skip
def test_invalid_views_are_rejected(old, new, told):
    graph = parse(JOINED.replace(old, new, 1))
    with pytest.raises(VerifyError) as caught:
        check_stored(graph)
    assert told in caught.value.message


PASSED_ON = """graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=a: f32[N, 4] @s0) = tanh(X=x)
  (X@GRAD=b: f32[N, 4] @s0) = relu_grad(Out=x, Out@GRAD=a) @k0
  (Y@GRAD=c: f32[N, 4] @s0) = elementwise_add_grad(Out@GRAD=b, X=x, Y=x) @k0
  (Out=d: f32[N, 4] @s1) = mul(X=b, Y=w)
  return c, d
}
"""
"""One kernel makes `b` and `c`, which are equal: an addition passes its gradient on."""


def test_a_view_of_a_value_of_the_same_kernel_shares_its_memory():
    graph = parse(PASSED_ON.replace(" @s0", "").replace(" @s1", ""))
    unlabelled = parse(show(graph))
    run_passes(graph, named(["schedule", "reuse_memory"]), Context())
    assert graph.find("b").slot == graph.find("c").slot
    check_stored(parse(PASSED_ON))
    feed, state = arrays(graph.feeds(), 1), arrays(graph.params(), 2)
    for got, want in zip(run(graph, feed, state), run(unlabelled, feed, state), strict=True):
        np.testing.assert_array_equal(got, want)


def test_another_value_of_the_same_kernel_does_not():
    changed = PASSED_ON.replace("elementwise_add_grad", "elementwise_sub_grad")
    with pytest.raises(VerifyError, match="slot 0 holds 'b' and 'c', which live at once"):
        check_stored(parse(changed))


def test_regions_print_and_parse():
    graph = parse(JOINED)
    assert "@s0[16, 16, 32]" in show(graph)
    assert show(parse(show(graph))) == show(graph)


def test_bytes_of_rows_with_gaps():
    part, whole = rows(4), rows(8)
    left, right = Region(0, 16, 32), Region(16, 16, 32)
    assert are_disjoint(part, left, part, right)
    assert not are_disjoint(part, left, whole, Region())
    assert strides(part, right) == (32, 4)
    assert end(part, right) == 32 * N
