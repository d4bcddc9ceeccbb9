"""Tiled convolution: tiles of rows, images and channels compute the same as the whole."""

import numpy as np
import pytest

import runtime
from compiler.interpret import run
from compiler.ir.opdef import find
from compiler.ir.text.printer import parse
from compiler.support.thresholds import lowered
from tests.codegen.support import inputs, module_of

GRAPH = """graph main {{
  feed x: f32[{batch}, {channels}, {height}, {width}]
  feed above: {above}
  param w: f32[{filters}, {depth}, {taps}, {taps}]
  (Output=y: {above}) = conv2d(Input=x, Filter=w) {attrs}
  (Filter@GRAD=dw: f32[{filters}, {depth}, {taps}, {taps}],
   Input@GRAD=dx: f32[{batch}, {channels}, {height}, {width}]) =
   conv2d_grad(Input=x, Filter=w, Output@GRAD=above) {attrs}
  return y, dx, dw
}}
"""

CASES = [
    {},
    {"height": 13},  # the last tile is smaller
    {"stride": 2, "height": 12, "width": 9},
    {"stride": 3, "taps": 2, "padding": 0},
    {"taps": 5, "padding": 2, "height": 11},
    {"taps": 1, "padding": 0, "stride": 2},
    {"taps": 1, "padding": 0},
    {"dilation": 2, "padding": 2, "height": 13},
    {"groups": 2, "channels": 4, "filters": 6},
    {"groups": 6, "channels": 6, "filters": 6, "height": 14},
    {"padding": 1, "channels": 7, "batch": 5},
    {"batch": "N"},
]


def text(
    batch=2, channels=3, height=10, width=8, filters=4, taps=3, stride=1, padding=1, dilation=1,
    groups=1,
):  # fmt: skip
    """A graph with a convolution and its gradients."""
    sizes = [
        (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for size in (height, width)
    ]
    above = f"f32[{batch}, {filters}, {sizes[0]}, {sizes[1]}]"
    attrs = {"strides": [stride] * 2, "paddings": [padding] * 2, "dilations": [dilation] * 2}
    arguments = {"batch": batch, "channels": channels, "height": height, "width": width}
    arguments |= {"filters": filters, "depth": channels // groups, "taps": taps, "above": above}
    created = GRAPH.format(**arguments, attrs=attrs | {"groups": groups})
    return created.replace(",\n   Input@", ", Input@").replace(" =\n   ", " = ")


@pytest.mark.parametrize("places", [1, 20])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_equal_the_whole_gives(case, places):
    assert find("conv2d")
    small = {"tile_positions": places, "column_elements": 40, "image_block": 64}
    graph = parse(text(**case))
    feed, state = inputs(graph, 3)
    with lowered(small):
        module = module_of(text(**case))
    got = runtime.load(module, params=dict(state), poison=True)(feed)
    for var, mine, wanted in zip(graph.results, got, run(graph, feed, state), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-4, err_msg=var.label)


def test_scratch_does_not_grow_with_the_image_or_the_batch():
    images = {"height": 64, "width": 64}
    sizes = [images, {"height": 128, "width": 128}, {"batch": 16, **images}]
    results = [scratch(text(channels=16, filters=16, **size)) for size in sizes]
    assert max(results) < 2 * min(results)


def scratch(graph):
    """Bytes of a module's buffers that no value has, at the fullest."""
    buffers = [buffer for buffer in module_of(graph).buffers if buffer.name.startswith("t")]
    return max(sum(b.nbytes for b in buffers if b.start == step) for step in range(3))
