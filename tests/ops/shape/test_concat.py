"""What is special about joining and splitting tensors."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import DType, TensorType
from tests.ops.generated import assert_matches_reference

N, M = Dim.named("N"), Dim.named("M")


def joined(kind, *shapes, dtypes=(DType.FP32,) * 9, **attrs):
    types = [TensorType(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=False)]
    return find(kind)(attrs).infer_types({"X": types})


def parts(shape, **attrs):
    out = find("split")(attrs).infer_types({"X": TensorType(DType.FP32, shape)})["Out"]
    return [each.shape for each in out]


def test_sizes_along_the_axis_add_up():
    assert joined("concat", (N, 2), (M, 2), (3, 2))["Out"].shape == (N + M + 3, 2)


def test_a_known_size_precedes_an_unknown_one():
    assert joined("concat", (UNKNOWN, 2), (4, 3), axis=1)["Out"].shape == (4, 5)
    assert joined("stack", (UNKNOWN, 2), (4, UNKNOWN))["Y"].shape == (2, 4, 2)


@pytest.mark.parametrize("kind", ["concat", "stack"])
@pytest.mark.parametrize(
    ("shapes", "dtypes"),
    [
        (((2, 3), (2, 3, 1)), [DType.FP32] * 2),
        (((2, 3), (3, 4)), [DType.FP32] * 2),
        (((2, 3), (2, 3)), [DType.FP32, DType.INT64]),
    ],
)
def test_concat_shape_errors(kind, shapes, dtypes):
    with pytest.raises(ShapeError, match=r"their shapes differ|must have one element type"):
        joined(kind, *shapes, dtypes=dtypes)


@pytest.mark.parametrize(("kind", "axis"), [("concat", 2), ("concat", -3), ("stack", 3)])
def test_axis_beyond_the_shape(kind, axis):
    with pytest.raises(ShapeError, match=f"axis {axis} is out of range"):
        joined(kind, (2, 3), (2, 3), axis=axis)


@pytest.mark.parametrize(
    ("shape", "attrs", "out"),
    [
        ((N, 6), {"num": 3, "axis": -1}, [(N, 2)] * 3),
        ((N * 4, 6), {"num": 2}, [(N * 2, 6)] * 2),
        ((N, 6), {"num": 2}, [(UNKNOWN, 6)] * 2),
        ((N, 6), {"sections": [2, -1, 3]}, [(2, 6), (N - 5, 6), (3, 6)]),
        ((2, 6), {"sections": [2, -1], "axis": 1}, [(2, 2), (2, 4)]),
    ],
)
def test_sizes_of_parts(shape, attrs, out):
    assert parts(shape, **attrs) == out


@pytest.mark.parametrize("attrs", [{"num": 4}, {"sections": [1, 2]}, {"sections": [7, -1]}])
def test_parts_that_are_not_the_whole(attrs):
    with pytest.raises(
        ShapeError, match=r"an axis of size 6 cannot be split into .*X is f32\[2, 6\]"
    ):
        parts((2, 6), axis=1, **attrs)


@pytest.mark.parametrize("attrs", [{}, {"sections": [-1, -1]}])
def test_split_needs_sections_or_num(attrs):
    with pytest.raises(BadAttribute, match="split: 'num' is 0 and 'sections'"):
        parts((2, 6), **attrs)


def test_parts_are_checked_when_a_size_is_known_at_last():
    op = find("split")({"num": 2})
    with pytest.raises(ValueError, match=re.escape("size 5 cannot be split into [2, 2]")):
        op.evaluate({"X": np.zeros((5, 2))})


def test_gradient_of_split_is_concat():
    op = OpDesc("split", {"X": ["x"]}, {"Out": ["a", "b"]}, {"num": 2, "axis": 1})
    (step,) = find("split")(op.attrs).grad_ops(op, lambda name: name + GRAD)
    assert (step.type, step.attrs) == ("concat", {"axis": 1})
    assert (step.inputs["X"], step.outputs["Out"]) == (["a@GRAD", "b@GRAD"], ["x@GRAD"])


def test_rows_are_chosen_among_tensors_there_are():
    X = [np.zeros((2, 3)), np.ones((2, 3))]
    with pytest.raises(ValueError, match="Ids are 1 to 2, expected 0 to 1"):
        find("multiplex")({}).evaluate({"X": X, "Ids": np.array([[2], [1]], np.int32)})


JOINED = """graph main {
  feed x: f32[N, 4]
  feed y: f32[N, 2]
  (Out=z: f32[N, 6]) = concat(X=[x, y]) {'axis': 1}
  (Out=[a: f32[N, 3], b: f32[N, 1], c: f32[N, 2]]) = split(X=z) {'sections': [3, 1, 2], 'axis': 1}
  (Out=t: f32[2, N]) = transpose(X=c) {'axis': [1, 0]}
  return z, b, t
}
"""


def test_generated_code_for_any_batch():
    assert_matches_reference(JOINED, {"N": 3}, {"N": 1}, {"N": 5})
