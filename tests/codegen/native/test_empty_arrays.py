"""Steps over arrays of zero rows, and images of no pixels, compile."""

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

PRODUCT = "(Out=a: f32[0, 5]) = mul(X=x, Y=y)\n  (Out=z: f32[0, 5]) = relu(X=a)"
GRAPHS = {
    "product": ("x: f32[0, 3]", "y: f32[3, 5]", PRODUCT),
    "convolution": (
        "x: f32[0, 3, 5, 5]",
        "y: f32[2, 3, 3, 3]",
        "(Output=z: f32[0, 2, 3, 3]) = conv2d(Input=x, Filter=y)",
    ),
    "depthwise transposed convolution": (
        "x: f32[2, 3, 1, 1]",
        "y: f32[3, 1, 2, 2]",
        "(Output=z: f32[2, 3, 0, 0]) = depthwise_conv2d_transpose(Input=x, Filter=y)"
        " {'groups': 3, 'paddings': [1, 1]}",
    ),
    "depthwise convolution": (
        "x: f32[2, 3, 0, 4]",
        "y: f32[3, 1, 1, 1]",
        "(Output=z: f32[2, 3, 2, 6]) = depthwise_conv2d(Input=x, Filter=y)"
        " {'groups': 3, 'paddings': [1, 1]}",
    ),
    "transposed convolution": (
        "x: f32[2, 3, 1, 1]",
        "y: f32[3, 4, 2, 2]",
        "(Output=z: f32[2, 4, 0, 0]) = conv2d_transpose(Input=x, Filter=y) {'paddings': [1, 1]}",
    ),
    "pooling of padding": (
        "x: f32[2, 3, 0, 4]",
        "y: f32[1]",
        "(Out=z: f32[2, 3, 2, 6]) = pool2d(X=x) {'ksize': [1, 1], 'paddings': [1, 1],"
        " 'pooling_type': 'max'}",
    ),
    "sum": ("x: f32[0, 3, 0]", "y: f32[1]", "(Out=z: f32[0, 0]) = reduce_sum(X=x) {'dim': [1]}"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_arrays_without_elements(name: str) -> None:
    x, y, ops = GRAPHS[name]
    graph = parse(f"graph main {{\n  feed {x}\n  feed {y}\n  {ops}\n  return z\n}}")
    target, feeds = NativeTarget(), graph.feeds()
    shape = graph.results[0].type.shape
    run_passes(graph, pipeline(Options(), target), Context())
    step = runtime.load(target.emit(freeze(graph)))
    (result,) = step({var.name: np.ones(var.type.shape, np.float32) for var in feeds})
    assert result.shape == shape
