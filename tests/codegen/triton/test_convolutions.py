"""Convolutions of a device, whatever their sizes: forward and both gradients, in both layouts."""

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import compiler
import fluid
import runtime
from compiler.codegen.triton.target import TritonTarget
from compiler.codegen.triton.tiling import product_tiles
from compiler.cost.plan_cost import Side, account
from compiler.errors import CompileError
from compiler.freeze import freeze
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from compiler.support.thresholds import lowered
from tests.codegen.test_triton import compare, module_of
from tests.ops.samples import Sample
from tests.ops.test_generated import NOBODY, backward, forward, graph_of

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

TARGET = TritonTarget()
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Failing examples are not shrunk: that takes minutes in the kernel interpreter."""

SLIDING = st.fixed_dictionaries({
    "strides": st.sampled_from([[1, 1], [2, 1], [2, 3], [4, 2]]),
    "paddings": st.sampled_from([[0, 0], [1, 2], [1, 0, 2, 1]]),
    "dilations": st.sampled_from([[1, 1], [2, 1]]),
})  # fmt: skip
"""How windows slide; paddings may differ before and behind."""

TAPS = st.sampled_from([(1, 1), (3, 3), (2, 5), (1, 3)])
IMAGE = st.tuples(st.integers(1, 3), st.integers(5, 11), st.integers(5, 9))
"""A batch and the sides of its images."""


def laid_out(layout, shape):
    batch, channels, *image = shape
    return (batch, channels, *image) if layout == "NCHW" else (batch, *image, channels)


def sample(kind, layout, shapes, attrs, seed=0):
    """A call of a convolution on numbers of both signs."""
    random = np.random.RandomState(seed)
    images, filters = (random.standard_normal(shape).astype("float32") for shape in shapes)
    return Sample(kind, {"Input": images, "Filter": filters}, {**attrs, "data_format": layout}, ())


def assert_matches_reference(call):
    """Compare an op and its gradient with the reference implementation."""
    try:
        cases = [forward(call), backward(call)]
    except (CompileError, ValueError):
        assume(False)
    for case in cases:
        graph, feed = graph_of(case, [*case.results], NOBODY)
        run_passes(graph, pipeline(Options(), TARGET), Context())
        result = runtime.load(TARGET.emit(freeze(graph)), runtime.CUDAPlace(0))(feed)
        for (slot, want), got in zip(case.results.items(), result, strict=True):
            far = 1e-6 * float(np.abs(want).max(initial=1.0))
            np.testing.assert_allclose(got, want, rtol=5e-5, atol=far, err_msg=slot)


@settings(max_examples=12, phases=PHASES)
@given(st.sampled_from(["NCHW", "NHWC"]), IMAGE, TAPS, SLIDING, st.sampled_from([1, 2, 3]),
       st.sampled_from([1, 4, 9]), st.sampled_from([1, 2, 8]))  # fmt: skip
def test_convolutions(layout, image, taps, sliding, groups, depth, filters):
    images = laid_out(layout, (image[0], groups * depth, *image[1:]))
    shapes = images, (groups * filters, depth, *taps)
    assert_matches_reference(sample("conv2d", layout, shapes, {**sliding, "groups": groups}))


@settings(max_examples=8, phases=PHASES)
@given(st.sampled_from(["NCHW", "NHWC"]), IMAGE, TAPS, SLIDING, st.integers(2, 6),
       st.sampled_from([1, 2]))  # fmt: skip
def test_depthwise_convolutions(layout, image, taps, sliding, channels, filters):
    images = laid_out(layout, (image[0], channels, *image[1:]))
    shapes = images, (channels * filters, 1, *taps)
    assert_matches_reference(
        sample("depthwise_conv2d", layout, shapes, {**sliding, "groups": channels})
    )


@settings(max_examples=8, phases=PHASES)
@given(st.sampled_from(["NCHW", "NHWC"]), IMAGE, TAPS, SLIDING, st.sampled_from([1, 2]),
       st.sampled_from([1, 9]))  # fmt: skip
def test_transposed_convolutions(layout, image, taps, sliding, groups, filters):
    images = laid_out(layout, (image[0], 4 * groups, *image[1:]))
    shapes = images, (4 * groups, filters, *taps)
    assert_matches_reference(
        sample("conv2d_transpose", layout, shapes, {**sliding, "groups": groups})
    )


@pytest.mark.parametrize(("side", "taps", "stride", "dilation", "padding"), [
    (12, 3, 2, 1, 1), (12, 1, 2, 1, 0), (8, 2, 2, 1, 0), (12, 3, 2, 2, 2), (12, 3, 4, 1, 1),
])  # fmt: skip
def test_image_gradients_multiply_no_zeros_between_strides(side, taps, stride, dilation, padding):
    """Each output pixel meets each tap once, as in the forward convolution, but for the edges."""
    attrs = {
        "strides": [stride] * 2, "dilations": [dilation] * 2, "paddings": [padding] * 2,
        "data_format": "NHWC",
    }  # fmt: skip
    case = backward(sample("conv2d", "NHWC", ((2, side, side, 8), (16, 8, taps, taps)), attrs))
    graph, _ = graph_of(case, ["Input@GRAD"], NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    costs = account(freeze(graph), {}).of(Side.DEVICE)
    assert sum(cost.products for cost in costs) == 2 * 2 * (side // stride) ** 2 * 8 * 16 * taps**2


POOLS = st.fixed_dictionaries({
    "pooling_type": st.sampled_from(["max", "avg"]),
    "ksize": st.sampled_from([[2, 2], [3, 3], [3, 2], [6, 7]]),
    "strides": st.sampled_from([[1, 1], [2, 2], [3, 2]]),
    "paddings": st.sampled_from([[0, 0], [1, 1], [1, 0, 0, 1]]),
    "ceil_mode": st.booleans(),
    "exclusive": st.booleans(),
})  # fmt: skip


@settings(max_examples=12, phases=PHASES)
@given(st.sampled_from(["NCHW", "NHWC"]), IMAGE, POOLS, st.integers(1, 5))
def test_pools(layout, image, attrs, channels):
    random = np.random.RandomState(0)
    shape = laid_out(layout, (image[0], channels, *image[1:]))
    images = random.standard_normal(shape).astype("float32")
    assert_matches_reference(Sample("pool2d", {"X": images}, {**attrs, "data_format": layout}, ()))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_long_sums_are_cut_into_parts_and_joined(layout, groups):
    shapes = laid_out(layout, (3, 16, 9, 7)), (16, 16 // groups, 3, 3)
    with lowered({product_tiles.MIN_SPLIT_ITERATIONS.name: 32}):
        assert_matches_reference(
            sample("conv2d", layout, shapes, {"paddings": [1, 1], "groups": groups})
        )


PRODUCT = """graph main {{
  feed x: f32[{rows}, {inner}]
  feed y: f32[{inner}, {columns}]
  param b: f32[{columns}]
  (Out=a: f32[{rows}, {columns}]) = mul(X=x, Y=y)
  (Out=c: f32[{rows}, {columns}]) = elementwise_add(X=a, Y=b)
  (Out=d: f32[{rows}, {columns}]) = relu(X=c)
  return d
}}
"""


@pytest.mark.parametrize(("rows", "columns", "inner"), [(3, 5, 1100), (70, 33, 1030)])
def test_a_narrow_product_is_cut_and_its_tail_joins_the_joining(rows, columns, inner):
    module = compare(PRODUCT.format(rows=rows, columns=columns, inner=inner), rtol=1e-4)
    assert len(module.kernels) == 2
    assert "first = (matrix)" in module.source


def test_products_round_their_factors_where_an_option_lets_them():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        out = fluid.layers.fc(fluid.data("x", [4, 8]), 3)
    sources = [
        compiler.compile(
            program, feed=["x"], fetch=[out], target="triton", options=Options(tf32=tf32)
        ).source
        for tf32 in (False, True)
    ]
    assert ['input_precision="tf32"' in source for source in sources] == [False, True]
    assert Options.from_env({"FLUID_TF32": "1"}).tf32


def test_a_product_with_a_large_result_is_not_cut():
    text = PRODUCT.format(rows=2048, columns=2048, inner=4096)
    assert "first = " not in module_of(text).source
