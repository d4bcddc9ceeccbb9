"""Convolution in blocks of images, with sizes that are named, and given what does not fit."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.image_ops import MAX_PHASES
from compiler.codegen.native.target import NativeTarget
from compiler.errors import BadAttribute, CompileError, ShapeError
from compiler.ir.dims import UNKNOWN, Dim, evaluate
from compiler.ir.opdef import find
from compiler.ir.types import DType, Shape, TensorType
from compiler.ir.windows import ConvGeometry, KnownWindow, Window
from compiler.ops.image import conv_numpy, im2col
from compiler.ops.image.conv_geometry import SKIPPED_TAPS, covering_counts, skips_taps
from compiler.support.thresholds import lowered
from tests.codegen.support import module_of
from tests.ops.compiled_samples import Compiled
from tests.ops.generated import assert_matches_reference
from tests.ops.samples import Sample, numbers
from tests.ops.samples.conv import SAMPLES
from tests.ops.test_generated import backward, check, forward

N, H, W = (Dim.named(name) for name in "NHW")
MANY = {"Input": numbers(7, 4, 5, 6), "Filter": numbers(6, 2, 3, 2, seed=1)}


def output(images: Shape, filters: Shape, **attrs: Any) -> Shape:
    """Return the shape that is inferred for images and filters."""
    types = {
        slot: TensorType(DType.FP32, s)
        for slot, s in zip(("Input", "Filter"), (images, filters), strict=True)
    }
    return find("conv2d")(attrs).infer_types(types)["Output"].shape


@pytest.mark.parametrize("elements", [1, 2500, 5000])
@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
def test_blocks_of_a_few_images(elements: int, strides: list[int]) -> None:
    """Blocks of one image, of two and of four, the last of them not full."""
    attrs = {"groups": 2, "paddings": [1, 0], "strides": strides}
    sample = Sample("conv2d", MANY, attrs, ("Input", "Filter"))
    with lowered({im2col.BLOCK_ELEMENTS.name: elements}):
        check(forward(sample))
        check(backward(sample))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.op)
def test_no_frame_is_shifted(monkeypatch: pytest.MonkeyPatch, sample: Sample) -> None:
    """Gathering real places only is right everywhere, not just where it is chosen."""
    monkeypatch.setattr(im2col.Im2col, "shifts", False)
    check(forward(sample))
    check(backward(sample))


TEXT = """graph main {{
  feed x: f32[N, 3, {size}]
  param w: f32[4, 3, 2, 3]
  (Output=y: f32[N, 4, {result}]) = conv2d(Filter=w, Input=x) {attrs}
  return y
}}"""


def test_module_serves_every_batch() -> None:
    text = TEXT.format(size="16, 16", result="15, 14", attrs="")
    assert_matches_reference(text, {"N": 1}, {"N": 70}, {"N": 0}, {"N": 5})


@pytest.mark.parametrize(
    ("height", "width", "attrs"),
    [
        ("H - 1", "W - 2", {}),
        ("(H - 1)//2 + 1", "(W - 1)//3 + 1", {"strides": [2, 3], "paddings": [1, 0, 1, 1]}),
        ("(H + 1)//2", "(W + 2)//3", {"strides": [2, 3], "padding_algorithm": "SAME"}),
        ("(H + 2)//3", "(W + 3)//4", {"strides": [3, 4], "padding_algorithm": "SAME"}),
    ],
)
def test_module_serves_every_image_size(height: str, width: str, attrs: dict[str, Any]) -> None:
    text = TEXT.format(size="H, W", result=f"{height}, {width}", attrs=attrs)
    sizes = [{"N": 2, "H": h, "W": w} for h, w in [(6, 7), (7, 8), (8, 5), (9, 10)]]
    assert_matches_reference(text, *sizes)


def test_scratch_follows_a_small_batch_and_is_bounded_for_a_large_one() -> None:
    text = TEXT.format(size="16, 16", result="15, 14", attrs="")
    scratch = [buffer for buffer in module_of(text).buffers if buffer.name[0] == "t"]
    small, large, huge = (
        sum(evaluate(each.nbytes, {"N": batch}) for each in scratch) for batch in (1, 64, 6400)
    )
    assert small < 64 * 1024
    assert large == huge < 600 * 1024


def test_shapes_of_named_sizes() -> None:
    assert output((N, 3, H, W), (4, 3, 3, 3), paddings=[1, 1]) == (N, 4, H, W)
    assert output((N, H, W, 3), (4, 3, 1, 1), data_format="NHWC") == (N, H, W, 4)
    strided = {"strides": [2, 2], "padding_algorithm": "SAME"}
    assert output((N, 3, H, 9), (4, 3, 1, 3), **strided) == (N, 4, (H + 1) // 2, 5)
    assert output((UNKNOWN, 3, UNKNOWN, 8), (4, 3, 3, 3)) == (UNKNOWN, 4, UNKNOWN, 6)


@pytest.mark.parametrize(
    ("images", "filters", "attrs", "error", "message"),
    [
        ((2, 3, 8), (4, 3, 3, 3), {}, ShapeError, r"Input is f32\[2, 3, 8\], expected 4 axes"),
        ((2, 3, 8, 8), (4, 3), {}, ShapeError, r"Filter is f32\[4, 3\], expected 4 axes"),
        ((2, 3, 8, 8), (4, 2, 3, 3), {}, ShapeError, "3 channels, 4 filters of 2 channels"),
        ((2, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}, ShapeError, "do not fit in 2 groups"),
        (
            (2, 3, 2, 8),
            (4, 3, 3, 3),
            {},
            ShapeError,
            "3 taps, dilation 1, does not fit on an axis of 2",
        ),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"strides": [0, 1]}, BadAttribute, r"strides is \[0, 1\]"),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"dilations": [1]}, BadAttribute, r"dilations is \[1\]"),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"paddings": [1]}, BadAttribute, r"paddings is \[1\]"),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"padding_algorithm": "FULL"}, BadAttribute, "is 'FULL'"),
    ],
)
def test_conv_shape_errors(
    images: Shape, filters: Shape, attrs: dict[str, Any], error: type[CompileError], message: str
) -> None:
    with pytest.raises(error, match=message):
        output(images, filters, **attrs)


def test_bias_has_an_element_for_each_filter() -> None:
    inputs = {"Input": (2, 3, 8, 8), "Filter": (4, 3, 3, 3), "Bias": (3,)}
    types = {slot: TensorType(DType.FP32, shape) for slot, shape in inputs.items()}
    with pytest.raises(ShapeError, match="must have one shape"):
        find("conv2d")().infer_types(types)


def test_depthwise_is_conv2d_in_groups() -> None:
    images, filters = numbers(2, 3, 5, 5), numbers(6, 1, 3, 3, seed=1)
    values, attrs = {"Input": images, "Filter": filters}, {"groups": 3, "strides": [2, 1]}
    ours, theirs = (
        find(kind)(attrs).evaluate(values)["Output"] for kind in ("depthwise_conv2d", "conv2d")
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("stride", "expected"), [(2, 10.0), (3, 10.0)])
def test_filters_that_overhang_by_less_than_a_stride_have_one_place(
    stride: int, expected: float
) -> None:
    """As recorded from the reference, whose division rounds towards zero."""
    images = np.array([[[[1, 2], [3, 4]]]], np.float32)
    inputs = {"Input": images, "Filter": np.ones((1, 1, 3, 3), np.float32)}
    attrs = {"strides": [stride, stride], "paddings": [0, 0]}
    assert find("conv2d")(attrs).evaluate(inputs)["Output"].tolist() == [[[[expected]]]]
    sample = Sample("conv2d", inputs, attrs, ("Input", "Filter"))
    check(forward(sample))
    check(backward(sample))


@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding", "dilation"),
    [(1, 4, 2, 1, 1), (2, 3, 2, 0, 1), (2, 4, 3, 0, 1), (2, 2, 3, 0, 2), (4, 3, 2, 1, 1)],
)
def test_transposed_filters_may_be_larger_than_images(
    size: int, taps: int, stride: int, padding: int, dilation: int
) -> None:
    """A convolution of such an image has one window that exceeds it, a transposed one has none."""
    images, filters = numbers(1, 1, size, size), numbers(1, 1, taps, taps, seed=1)
    whole = (size - 1) * stride + dilation * (taps - 1) + 1
    expected = np.zeros((whole, whole), np.float32)
    for row, column in np.ndindex(size, size):
        reached = (
            slice(at * stride, at * stride + dilation * taps, dilation) for at in (row, column)
        )
        expected[tuple(reached)] += images[0, 0, row, column] * filters[0, 0]
    expected = expected[padding : whole - padding, padding : whole - padding]
    attrs = {"strides": [stride] * 2, "paddings": [padding] * 2, "dilations": [dilation] * 2}
    inputs = {"Input": images, "Filter": filters}
    actual = find("conv2d_transpose")(attrs).evaluate(inputs)["Output"]
    np.testing.assert_allclose(actual[0, 0], expected, rtol=1e-5)
    sample = Sample("conv2d_transpose", inputs, attrs, ("Input", "Filter"))
    check(forward(sample))
    check(backward(sample))


@pytest.mark.parametrize("groups", [1, 2])
def test_taps_of_the_reference_implementation_are_gathered_in_blocks(
    monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """Columns of all taps would take many times the memory of images and long filters."""
    images, filters = numbers(2, 4, 7, 6), numbers(6, 4 // groups, 3, 2)
    windows = [KnownWindow(7, 3, 2, 1, 1, 1, 4), KnownWindow(6, 2, 1, 1, 0, 0, 5)]
    d_outputs = numbers(2, 6, 4, 5)
    calls = (
        lambda: conv_numpy.convolution(images, filters, windows, groups),
        lambda: conv_numpy.convolution_image_gradient(d_outputs, filters, windows, groups),
        lambda: conv_numpy.convolution_filter_gradient(images, d_outputs, windows, groups),
    )
    whole = [call() for call in calls]
    monkeypatch.setattr(conv_numpy, "tap_blocks", partial(conv_numpy.tap_blocks, limit=200))
    assert len(conv_numpy.tap_blocks(4, windows)) == 3
    for call, expected in zip(calls, whole, strict=True):
        np.testing.assert_allclose(call(), expected, rtol=1e-5, atol=1e-6)


def test_windows_far_apart_read_only_the_taps_that_cover_an_element() -> None:
    """4 of 64 x 64 taps, at strides of 32."""
    window = Window(256, 64, 32, 3, 0, 0, 8)
    assert skips_taps(SimpleNamespace(on_gpu=False), ConvGeometry("NCHW", 1, (window, window)))
    assert covering_counts((window, window)) == [2, 2]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "dilation"), [(4, 1), (5, 2), (5, 3), (6, 4), (3, 3)])
@pytest.mark.parametrize("kernel", [3, 10])
def test_images_of_windows_far_apart(kernel: int, stride: int, dilation: int, groups: int) -> None:
    """Also where no tap covers some of the elements."""
    inputs = {"Input": numbers(1, 4, 3, 2), "Filter": numbers(4, 4 // groups, kernel, 2)}
    attrs = {"strides": [stride, 1], "dilations": [dilation] * 2, "groups": groups}
    attrs["paddings"] = [1, 0]
    sample = Sample("conv2d_transpose", inputs, attrs)
    with lowered({MAX_PHASES.name: 1, SKIPPED_TAPS.name: 2}):
        Compiled(NativeTarget(), checked=True).check(forward(sample), sample)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("relu", [-1.0, 4.0]),
        ("relu6", [0.0, 0.5]),
        ("leaky_relu", [-1.0, 4.0]),
        ("swish", [-2 / (1 + np.e), 4 / (1 + np.exp(-2))]),
    ],
)
def test_programs_for_onednn_activate_their_convolutions(kind: str, expected: list[float]) -> None:
    """`relu` has the slope `fuse_alpha` below zero too, as in the reference."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        image = fluid.data("x", [1, 1, 1, 2])
        filters = fluid.layers.fill_constant([1, 1, 1, 1], "float32", 2.0)
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="out", dtype="float32")
        attrs = {"use_mkldnn": True, "fuse_activation": kind, "fuse_alpha": 0.5}
        inputs = {"Input": image, "Filter": filters}
        block.append_op("conv2d", inputs=inputs, outputs={"Output": out}, attrs=attrs)
        feed = {"x": np.array([-1.0, 2.0], "float32").reshape(1, 1, 1, 2)}
        found, *_ = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    assert found.ravel() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["conv2d", "conv3d", "conv2d_transpose", "depthwise_conv2d"])
@pytest.mark.parametrize("attrs", [{"fuse_relu": True}, {"fuse_activation": "relu"}])
def test_every_convolution_for_onednn_is_activated(kind: str, attrs: dict[str, Any]) -> None:
    axes = 3 if kind == "conv3d" else 2
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        image = fluid.data("x", [1, 1, *[1] * (axes - 1), 2])
        filters = fluid.layers.fill_constant([1, 1, *[1] * axes], "float32", 2.0)
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="out", dtype="float32")
        settings = {name: [size] * axes for name, size in (("strides", 1), ("paddings", 0))}
        block.append_op(
            kind, inputs={"Input": image, "Filter": filters}, outputs={"Output": out},
            attrs={"use_mkldnn": True, "dilations": [1] * axes, **settings, **attrs},
        )  # fmt: skip
        feed = {"x": np.array([-1.0, 2.0], "float32").reshape(image.shape)}
        result, *_ = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    assert result.ravel().tolist() == [0.0, 4.0]
