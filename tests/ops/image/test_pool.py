"""Pooling: where gradients of equal values go, sizes that are named, and what is refused."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.errors import BadAttribute, CompileError, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.program import GRAD
from compiler.ir.types import DType, Shape, TensorType
from compiler.ir.windows import StaticWindow
from tests.ops.compiled_samples import Compiled
from tests.ops.generated import assert_matches_reference
from tests.ops.samples import Sample
from tests.ops.test_generated import backward, check, forward

N, H, W = (Dim.named(name) for name in "NHW")


def output(images: Shape, kind: str = "max", ksize: Any = (2, 2), **attrs: Any) -> Shape:
    """Return the shape that is inferred for images."""
    op = find("pool2d")({"pooling_type": kind, "ksize": list(ksize), **attrs})
    return op.infer_types({"X": TensorType(DType.FP32, images)})["Out"].shape


TIES = np.array([[0, 0, 2, 1], [0, 0, 1, 2], [3, 3, 0, 0], [1, 3, 0, 5]], np.float32)[None, None]


@pytest.mark.parametrize(
    ("attrs", "places"),
    [
        ({"ksize": [2, 2], "strides": [2, 2]}, [(0, 0), (0, 2), (2, 0), (3, 3)]),
        ({"ksize": [1, 1], "global_pooling": True}, [(3, 3)]),
        ({"ksize": [4, 3]}, [(2, 0), (3, 3)]),
        (
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
            [(0, 0), (0, 2), (2, 0), (3, 3)],
        ),
    ],
)
def test_gradient_reaches_the_first_largest(
    attrs: dict[str, Any], places: list[tuple[int, int]]
) -> None:
    inputs = {"pooling_type": "max", **attrs}
    out = find("pool2d")(inputs).evaluate({"X": TIES})["Out"]
    values = {"X": TIES, "Out": out, "Out" + GRAD: np.ones_like(out)}
    result = find("pool2d_grad")(inputs).evaluate(values)["X" + GRAD]
    assert [(y, x) for _, _, y, x in zip(*np.nonzero(result), strict=True)] == sorted(places)
    sample = Sample("pool2d", {"X": TIES}, inputs, ("X",))
    check(forward(sample))
    check(backward(sample))


IMAGE = np.array([[1, 3, 3, 2], [2, 3, 1, 0], [5, 5, 0, 7], [4, 5, 7, 7]], np.float32)[None, None]
PLAIN = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2]}


@pytest.mark.parametrize(
    ("attrs", "out", "places"),
    [
        (PLAIN, [[2, 3], [9, 7]], {(1, 0): 1, (0, 2): 2, (2, 3): 4}),
        (
            {**PLAIN, "strides": [1, 1]},
            [[2, 3, 2], [5, 1, 7], [5, 5, 7]],
            {(0, 1): 2, (0, 3): 3, (1, 0): 1, (1, 2): 5, (2, 0): 11, (2, 1): 8, (2, 3): 15},
        ),
        ({**PLAIN, "global_pooling": True}, [[5]], {(2, 0): 1}),
        ({**PLAIN, "global_pooling": True}, [[8]], {}),
        ({**PLAIN, "adaptive": True}, [[3, 0], [4, 1]], {(0, 1): 1, (1, 3): 2, (3, 0): 3}),
    ],
)
def test_gradient_of_a_maximum_that_is_given_reaches_the_first_equal_element(
    attrs: dict[str, Any], out: Any, places: dict[tuple[int, int], float]
) -> None:
    """As in release 1.8.5, on every path; a maximum that no element equals passes nothing on."""
    given = np.array(out, np.float32)[None, None]
    upstream = np.arange(1, given.size + 1, dtype=np.float32).reshape(given.shape)
    sample = Sample("pool2d_grad", {"X": IMAGE, "Out": given, "Out" + GRAD: upstream}, attrs)
    result = find("pool2d_grad")(attrs).evaluate(sample.inputs)["X" + GRAD][0, 0]
    assert {(y, x): result[y, x] for y, x in zip(*np.nonzero(result), strict=True)} == places
    check(forward(sample))


def test_gradient_of_a_pyramid_reaches_the_first_equal_element() -> None:
    attrs = {"pyramid_height": 2, "pooling_type": "max"}
    given = {"Out": [[5, 2, 3, 9, 7]], "Out" + GRAD: [[1, 10, 100, 1000, 10000]]}
    arrays = {slot: np.array(values, np.float32) for slot, values in given.items()}
    sample = Sample("spp_grad", {"X": IMAGE, **arrays}, attrs)
    result = find("spp_grad")(attrs).evaluate(sample.inputs)["X" + GRAD][0, 0]
    wanted = {(0, 2): 100, (1, 0): 10, (2, 0): 1, (2, 3): 10000}
    assert {(y, x): result[y, x] for y, x in zip(*np.nonzero(result), strict=True)} == wanted
    check(forward(sample))


OUTSIDE = np.array(
    [[-np.inf, -np.inf, np.nan, 1], [-np.inf, -np.inf, 2, 0], [4, 2, 3, 3], [1, 3, 0, np.nan]]
)
"""A window below the lowest number, two with NaN, and one with neither."""


@pytest.mark.parametrize(
    "attrs",
    [
        {"ksize": [2, 2], "strides": [2, 2]},
        {"ksize": [2, 2], "strides": [1, 1]},
        {"ksize": [1, 1], "strides": [3, 2]},
        {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]},
        {"ksize": [2, 2], "global_pooling": True},
        {"ksize": [2, 2], "adaptive": True},
    ],
)
@pytest.mark.parametrize("kind", ["pool2d", "max_pool2d_with_index"])
@pytest.mark.parametrize(("corner", "dtype"), [(2, np.float32), (4, np.float64)])
def test_maxima_of_infinities_and_nan_are_the_same_on_every_path(
    corner: int, dtype: Any, kind: str, attrs: dict[str, Any]
) -> None:
    """A maximum is the lowest finite number or more, as in release 1.8.5, or NaN; neither NaN nor
    what is lower has a place.
    """
    images = OUTSIDE[:corner, :corner].astype(dtype)[None, None]
    if kind == "pool2d":
        attrs = {"pooling_type": "max", **attrs}
    sample = Sample(kind, {"X": images}, attrs, ("X",))
    outputs = find(kind)(attrs).evaluate({"X": images})
    assert not np.isneginf(outputs["Out"]).any()
    if "Mask" in outputs:
        nowhere = np.isnan(outputs["Out"]) | (outputs["Out"] == np.finfo(dtype).min)
        np.testing.assert_array_equal(outputs["Mask"] < 0, nowhere)
    for case in (forward(sample), backward(sample)):
        check(case)
        if detected() is not None:
            Compiled(NativeTarget()).check(case, sample)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize(
    ("ksize", "strides", "paddings"),
    [
        ([5, 9], [1, 2], [2, 5]),
        ([20, 7], [3, 1], [15, 3]),
        ([1_000_001] * 2, [1, 1], [500_000] * 2),
    ],
    ids=str,
)
def test_windows_much_larger_than_the_image_read_its_elements_once(
    kind: str, exclusive: bool, ksize: list[int], strides: list[int], paddings: list[int]
) -> None:
    attrs = {"pooling_type": kind, "exclusive": exclusive, "ksize": ksize}
    attrs |= {"strides": strides, "paddings": paddings}
    images = np.random.default_rng(3).normal(size=(1, 2, 4, 4)).astype(np.float32)
    out = find("pool2d")(attrs).evaluate({"X": images})["Out"]
    divisor = ksize[0] * ksize[1]
    for y, x in np.ndindex(out.shape[2:]):
        start = [i * s - p for i, s, p in zip((y, x), strides, paddings, strict=True)]
        end = [first + size for first, size in zip(start, ksize, strict=True)]
        rows, columns = (slice(max(a, 0), max(b, 0)) for a, b in zip(start, end, strict=True))
        part = images[:, :, rows, columns]
        count = part[0, 0].size if exclusive else divisor
        expected = part.max((2, 3)) if kind == "max" else part.sum((2, 3)) / count
        np.testing.assert_allclose(out[:, :, y, x], expected, 1e-5, 1e-12)
    samples = [Sample("pool2d", {"X": images}, attrs, ("X",))]
    if kind == "max":
        attrs = {"ksize": ksize, "strides": strides, "paddings": paddings}
        samples.append(Sample("max_pool2d_with_index", {"X": images}, attrs, ("X",)))
    for sample in samples:
        check(forward(sample))
        check(backward(sample))


def test_a_clipped_window_covers_the_same_elements() -> None:
    for size, kernel, stride, before, after in product(
        range(1, 5), range(1, 10), range(1, 4), range(5), range(3)
    ):
        window = StaticWindow.fitting(size, kernel, stride, 1, before, after)
        if not isinstance(window.count, int) or window.count < 1:
            continue
        clipped = window.clipped
        assert covered(clipped) == covered(window)
        if kernel > before:
            assert clipped.kernel <= size + min(before, (window.count - 1) * stride)
        positions = (clipped.padded - clipped.span) // stride + 1
        assert positions >= clipped.count == window.count


def covered(window: Any) -> list[list[int]]:
    """The elements of the axis that each position covers."""
    starts = [x * window.stride - window.before for x in range(window.count)]
    taps = [range(start, start + window.kernel) for start in starts]
    return [[place for place in each if 0 <= place < window.size] for each in taps]


def test_pool_windows_outside_the_image() -> None:
    """The reference divides 0 by 0 there; a number is better than poison."""
    attrs = {"ksize": [1, 1], "strides": [2, 2], "ceil_mode": True}
    images = np.ones((1, 1, 2, 2), np.float32)
    for kind, beside in (("max", np.finfo(np.float32).min), ("avg", 0.0)):
        sample = Sample("pool2d", {"X": images}, {"pooling_type": kind, **attrs}, ("X",))
        result = find("pool2d")(sample.attrs).evaluate(sample.inputs)["Out"]
        np.testing.assert_array_equal(result, [[[[1, beside], [beside, beside]]]])
        check(forward(sample))
        check(backward(sample))


TEXT = """graph main {{
  feed x: f32[N, 3, H, W]
  (Out=y: f32[N, 3, {height}, {width}]) = pool2d(X=x) {attrs}
  (X@GRAD=z: f32[N, 3, H, W]) = pool2d_grad(Out=y, Out@GRAD=y, X=x) {attrs}
  return y, z
}}"""


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("height", "width", "attrs"),
    [
        ("(H - 2)//2 + 1", "(W - 3)//2 + 1", {"ksize": [2, 3], "strides": [2, 2]}),
        (
            "H//2 + 1",
            "W//2 + 1",
            {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "ceil_mode": True},
        ),
        ("1", "1", {"ksize": [1, 1], "global_pooling": True}),
        ("3", "2", {"ksize": [3, 2], "adaptive": True}),
    ],
)
def test_module_serves_every_image_size(
    height: str, width: str, attrs: dict[str, Any], kind: str
) -> None:
    attrs = {**attrs, "pooling_type": kind}
    text = TEXT.format(height=height, width=width, attrs=attrs)
    assert_matches_reference(text, *({"N": 2, "H": h, "W": w} for h, w in [(6, 7), (7, 8), (8, 5)]))


def test_shapes_of_named_sizes() -> None:
    halved = {"strides": [2, 2]}
    assert output((N, 3, 12, 13), **halved) == (N, 3, 6, 6)
    assert output((N, 3, 12, 13), ceil_mode=True, **halved) == (N, 3, 6, 7)
    assert output((N, H, W, 3), data_format="NHWC") == (N, H - 1, W - 1, 3)
    assert output((N, 3, H, W), padding_algorithm="SAME") == (N, 3, H, W)
    assert output((N, 3, H, W), global_pooling=True) == (N, 3, 1, 1)
    assert output((N, 3, H, W), adaptive=True) == (N, 3, 2, 2)
    assert output((UNKNOWN, 3, UNKNOWN, 8)) == (UNKNOWN, 3, UNKNOWN, 7)


@pytest.mark.parametrize(
    ("images", "attrs", "error", "message"),
    [
        ((2, 3, 8), {}, ShapeError, r"X is f32\[2, 3, 8\], expected 4 axes"),
        ((2, 3, 8, 8), {"kind": "sum"}, BadAttribute, "pooling_type is 'sum'"),
        ((2, 3, 8, 8), {"ksize": [2]}, BadAttribute, r"ksize is \[2\], expected 2"),
        ((2, 3, 8, 8), {"ksize": [-1, -1]}, BadAttribute, r"ksize is \[-1, -1\]"),
        ((2, 3, 1, 8), {}, ShapeError, "2 taps, dilation 1, does not fit on an axis of 1"),
        ((2, 3, 8, 8), {"paddings": [1, 2, 3]}, BadAttribute, r"paddings is \[1, 2, 3\]"),
    ],
)
def test_pool_shape_errors(
    images: Shape, attrs: dict[str, Any], error: type[CompileError], message: str
) -> None:
    with pytest.raises(error, match=message):
        output(images, **attrs)


@pytest.mark.parametrize(
    ("kind", "exclusive", "expected"),
    [("max", True, 4.0), ("avg", True, 2.5), ("avg", False, 10 / 9)],
)
def test_a_window_that_overhangs_by_less_than_a_stride_has_one_place(
    kind: str, exclusive: bool, expected: float
) -> None:
    """As recorded from the reference, whose division rounds towards zero."""
    attrs = {"pooling_type": kind, "ksize": [3, 3], "strides": [2, 2], "exclusive": exclusive}
    images = np.array([[[[1, 2], [3, 4]]]], np.float32)
    actual = find("pool2d")(attrs).evaluate({"X": images})["Out"]
    np.testing.assert_allclose(actual, [[[[expected]]]], rtol=1e-6)
    sample = Sample("pool2d", {"X": images}, attrs, ("X",))
    check(forward(sample))
    check(backward(sample))
