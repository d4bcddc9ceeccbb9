"""The account of plans, held against what a person counts."""

import pytest

from compiler.account import GPUS, Cost, account
from compiler.freeze import freeze
from compiler.ir.text import parse
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from compiler.report.roofline import roofline_table


def costs_of(text, disable=(), **sizes):
    graph = parse(text)
    run_passes(graph, pipeline(Options(disable=frozenset(disable))), Context())
    return account(freeze(graph), sizes)


LAYER = """graph main {
  feed x: f32[N, 6]
  param w: f32[6, 5]
  param b: f32[5]
  (Out=h: f32[N, 5]) = mul(X=x, Y=w)
  (Out=a: f32[N, 5]) = elementwise_add(X=h, Y=b) {'axis': 1}
  (Out=y: f32[N, 5]) = relu(X=a)
  return y
}
"""


def test_a_layer_as_three_kernels():
    apart = costs_of(LAYER, ["fuse_pointwise", "fuse_epilogue"], N=10)
    assert apart == [
        Cost("mul", 4 * (10 * 6 + 6 * 5), 4 * 50, 2 * 10 * 6 * 5),
        Cost("elementwise_add", 4 * (50 + 5), 4 * 50, 50),
        Cost("relu", 4 * 50, 4 * 50, 50),
    ]


def test_a_layer_as_one_kernel_reads_and_writes_once():
    (whole,) = costs_of(LAYER, N=10)
    assert (whole.read, whole.written) == (4 * (10 * 6 + 6 * 5 + 5), 4 * 50)
    assert whole.operations == 2 * 10 * 6 * 5 + 50 + 50


@pytest.mark.parametrize(
    ("kind", "x", "w", "y", "attrs", "products"),
    [
        ("conv2d", "2, 4, 8, 8", "6, 4, 3, 3", "2, 6, 6, 6", "", 2 * 6 * 36 * 4 * 9),
        ("conv2d", "2, 4, 8, 8", "6, 2, 3, 3", "2, 6, 6, 6", "{'groups': 2}", 2 * 6 * 36 * 2 * 9),
        ("conv2d_transpose", "2, 4, 8, 8", "4, 6, 3, 3", "2, 6, 10, 10", "", 2 * 4 * 64 * 6 * 9),
    ],
)
def test_convolutions(kind, x, w, y, attrs, products):
    (cost,) = costs_of(
        f"""graph main {{
  feed x: f32[{x}]
  param w: f32[{w}]
  (Output=y: f32[{y}]) = {kind}(Filter=w, Input=x) {attrs}
  return y
}}
"""
    )
    assert cost.operations == 2 * products


def test_each_gradient_of_a_product_is_as_much_work_as_the_product():
    text = """graph main {
  feed x: f32[7, 6]
  feed g: f32[7, 5]
  param w: f32[6, 5]
  (X@GRAD=a: f32[7, 6], Y@GRAD=b: f32[6, 5]) = mul_grad(Out@GRAD=g, X=x, Y=w)
  return a, b
}
"""
    (cost,) = costs_of(text)
    assert cost.operations == 2 * 2 * 7 * 6 * 5
    assert cost.moved == 4 * (7 * 5 + 7 * 6 + 6 * 5 + 7 * 6 + 6 * 5)


def test_the_longer_of_moving_and_computing_bounds_a_kernel():
    gpu = GPUS["h200"]
    assert gpu.seconds(Cost("copy", 4_800_000_000, 0, 1)) == pytest.approx(1e-3)
    assert gpu.seconds(Cost("dot", 8, 8, 67 * 10**9)) == pytest.approx(1e-3)
    assert gpu.seconds(Cost("dot", 8, 8, 989 * 10**9), DType.FP16) == pytest.approx(1e-3)


def test_the_table_names_the_longest_and_adds_all_up():
    costs = costs_of(LAYER, ["fuse_pointwise", "fuse_epilogue"], N=10)
    text = roofline_table(costs, GPUS["h200"])
    assert text.splitlines()[0].strip() == "roofline h200, float32"
    assert text.splitlines()[-1].split()[:3] == ["all", "3", "kernels"]
    assert roofline_table([], GPUS["h200"]) == "roofline h200: no kernels"
