"""Gradients that nobody reads are not computed; those fetched, or read by others, are."""

import numpy as np
import pytest

import fluid
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.text.parser import parse
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.simplify.drop_unread import DropUnread
from fluid.contrib.mixed_precision import decorate
from tests.support.nets import zoo

TEXT = """graph main {{
  feed x: f32[N, 3]
  feed w: f32[3, 4]
  feed d: f32[N, 4]
  (X@GRAD=dx: f32[N, 3], Y@GRAD=dw: f32[3, 4]) = mul_grad(X=x, Y=w, Out@GRAD=d)
  (Out=c: f32[N, 3]) = relu(X=dx)
  return {results}
}}
"""


def outputs(text):
    graph = parse(text)
    run_passes(graph, [DropUnread()], Context())
    return [slot for op in graph.ops() if op.kind == "mul_grad" for slot in op.outputs]


@pytest.mark.parametrize(("results", "found"), [
    ("dw", ["Y@GRAD"]), ("dx", ["X@GRAD"]), ("c", ["X@GRAD"]), ("dw, c", ["X@GRAD", "Y@GRAD"]),
    ("x", []),
])  # fmt: skip
def test_only_gradients_that_are_read_remain(results, found):
    assert outputs(TEXT.format(results=results)) == found


def mixed():
    plain = zoo.MODELS["resnet_cifar8"].optimizer
    optimizer = lambda module: decorate(plain(module), dtype="bfloat16")  # noqa: E731
    return zoo.build(fluid, "resnet_cifar8", optimizer=optimizer)


def test_mixed_precision_computes_no_gradient_of_images():
    created = mixed()
    feeds = [var.name for var in created.main.list_vars() if var.is_data]
    graph = to_graph(created.main, feed_shapes(created.main, feeds), [created.loss.name])
    whole = [op for op in graph.ops() if "Input@GRAD" in op.outputs]
    run_passes(graph, [DropUnread()], Context())
    assert len([op for op in graph.ops() if "Input@GRAD" in op.outputs]) == len(whole) - 1
    assert len([op for op in graph.ops() if "Filter@GRAD" in op.outputs]) == len(whole)


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_numbers_stay_the_same(monkeypatch, target):
    def losses():
        created, scope = mixed(), fluid.Scope()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(created.startup, scope=scope)
        batch = zoo.draw("resnet_cifar8", np.random.RandomState(0), 4)
        return [executor.run(created.main, batch, [created.loss], scope=scope)[0] for _ in range(3)]

    monkeypatch.setenv("FLUID_TARGET", target)
    without = losses()
    monkeypatch.setenv("FLUID_DISABLE", "drop_unread")
    np.testing.assert_array_equal(without, losses())
