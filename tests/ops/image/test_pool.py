"""Pooling: where gradients of equal values go, sizes that are named, and what is refused."""

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
