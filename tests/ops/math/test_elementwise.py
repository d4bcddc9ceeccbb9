"""What is special about arithmetic and comparison: alignment of shapes, missed, gradient ops."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import DType, TensorType


def f32(*shape):
    return TensorType(DType.FP32, shape)


def infer(kind, attrs, **types):
    return find(kind)(attrs).infer_types(types)


def gradient(kind, attrs, **inputs):
    op = OpDesc(kind, inputs, {"Out": ["y"]}, attrs)
    steps = find(kind)(attrs).grad_ops(op, lambda name: name + GRAD)
    return [(step.type, step.inputs["X"], step.outputs["Out"], step.attrs) for step in steps]


@pytest.mark.parametrize(
    ("x", "y", "axis", "view"),
    [
        ((2, 3, 4), (4,), -1, (1, 1, 4)),
        ((2, 3, 4), (3, 4), -1, (1, 3, 4)),
        ((2, 3, 4), (3,), 1, (1, 3, 1)),
        ((2, 3, 4), (2, 3), 0, (2, 3, 1)),
        ((2, 3, 4), (3, 1), 1, (1, 3, 1)),
        ((2, 3, 4), (4, 1), 2, (1, 1, 4)),
        ((2, 3, 4), (1,), -1, (1, 1, 1)),
        ((UNKNOWN, 3, 4), (UNKNOWN,), 0, (UNKNOWN, 1, 1)),
    ],
)
def test_smaller_operand_is_aligned_at_axis(x, y, axis, view):
    op = find("elementwise_add")({"axis": axis})
    assert op.align({"X": f32(*x), "Y": f32(*y)}) == {"Y": view}
    assert op.align({"X": f32(*y), "Y": f32(*x)}) == {"X": view}
    assert op.infer_types({"X": f32(*x), "Y": f32(*y)}) == {"Out": f32(*x)}


@pytest.mark.parametrize(
    ("x", "y", "axis"), [((2, 3), (4,), -1), ((2, 3, 4), (3,), -1), ((2, 3), (4, 3), -1)]
)
def test_shapes_that_do_not_fit_are_both_named(x, y, axis):
    with pytest.raises(ShapeError, match=r"elementwise_mul.*\[.*\] and \[.*\]"):
        infer("elementwise_mul", {"axis": axis}, X=f32(*x), Y=f32(*y))


def test_axis_that_leaves_no_room():
    message = "elementwise_add: [3, 4] at axis 2 exceeds [2, 3, 4]"
    with pytest.raises(ShapeError, match=re.escape(message)):
        infer("elementwise_add", {"axis": 2}, X=f32(2, 3, 4), Y=f32(3, 4))


def test_element_types_must_agree():
    whole = TensorType(DType.INT64, (3,))
    with pytest.raises(ShapeError, match=re.escape("X f32[3] and Y i64[3] must have one")):
        infer("elementwise_add", {}, X=f32(3), Y=whole)


def test_named_batch_size_is_preserved():
    batch = Dim.named("N")
    assert infer("less_than", {}, X=f32(batch, 1), Y=f32(1)) == {
        "Out": TensorType(DType.BOOL, (batch, 1))
    }


def test_integers_are_divided_towards_zero():
    result = find("elementwise_div")({}).evaluate({"X": np.array([-7, 7]), "Y": np.array([2, 2])})
    np.testing.assert_array_equal(result["Out"], [-3, 3])


def test_whole_numbers_are_divided_towards_zero_and_floats_by_floor():
    X, Y = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2])
    whole = {
        op: find(f"elementwise_{op}")({}).evaluate({"X": X, "Y": Y}) for op in ("floordiv", "mod")
    }
    np.testing.assert_array_equal(whole["floordiv"]["Out"], [-3, -3, 3, 3])
    np.testing.assert_array_equal(whole["mod"]["Out"], [-1, 1, -1, 1])
    result = find("elementwise_mod")({}).evaluate({"X": X / 1.0, "Y": Y / 1.0})["Out"]
    np.testing.assert_array_equal(result, [1, -1, -1, 1])


def test_floordiv_is_of_whole_numbers():
    with pytest.raises(
        ShapeError, match=re.escape("X is f32[3], expected element type i32 or i64")
    ):
        infer("elementwise_floordiv", {}, X=f32(3), Y=f32(3))


def test_whole_powers_of_whole_numbers():
    X, Y = np.array([7, -7, 7]), np.array([2, 3, -2])
    result = find("elementwise_pow")({}).evaluate({"X": X, "Y": Y})["Out"]
    np.testing.assert_array_equal(result, [49, -343, 0])


def test_factors_of_whole_numbers_are_whole():
    result = find("scale")({"scale": 2.7, "bias": 1.9}).evaluate({"X": np.array([3, -3])})["Out"]
    np.testing.assert_array_equal(result, [7, -5])


def test_gradient_of_minus():
    op = OpDesc("minus", {"X": ["a"], "Y": ["b"]}, {"Out": ["y"]}, {})
    steps = find("minus")({}).grad_ops(op, lambda name: name + GRAD)
    created = [(step.type, step.outputs["Out"], step.attrs) for step in steps]
    assert created == [
        ("scale", ["a@GRAD"], {"scale": 1.0}),
        ("scale", ["b@GRAD"], {"scale": -1.0}),
    ]


def test_gradient_of_scale_reads_the_same_factor():
    op = OpDesc("scale", {"X": ["x"], "ScaleTensor": ["s"]}, {"Out": ["y"]}, {"bias": 1.0})
    (back,) = find("scale")(op.attrs).grad_ops(op, lambda name: name + GRAD)
    assert back.inputs == {"X": ["y@GRAD"], "ScaleTensor": ["s"]}
    assert back.outputs == {"Out": ["x@GRAD"]}


def test_equal_values_give_their_gradient_to_y():
    equal = np.array([1.0, 2.0], np.float32)
    for kind in ("elementwise_max_grad", "elementwise_min_grad"):
        result = find(kind)({}).evaluate({"X": equal, "Y": equal, "Out@GRAD": equal + 5})
        np.testing.assert_array_equal(result["X@GRAD"], [0, 0])
        np.testing.assert_array_equal(result["Y@GRAD"], [6, 7])


def test_gradient_of_scale_is_scale_without_bias():
    attrs = {"scale": 3.0, "bias": 1.0, "bias_after_scale": False}
    plain = {"scale": 3.0, "bias": 0.0, "bias_after_scale": True}
    assert gradient("scale", attrs, X=["x"]) == [("scale", ["y@GRAD"], ["x@GRAD"], plain)]


def test_gradient_of_sum_is_a_scale_for_each_term():
    assert gradient("sum", {}, X=["a", "b"]) == [
        ("scale", ["y@GRAD"], ["a@GRAD"], {"scale": 1.0}),
        ("scale", ["y@GRAD"], ["b@GRAD"], {"scale": 1.0}),
    ]


def test_sum_rejects_terms_of_other_shapes():
    with pytest.raises(ShapeError, match=re.escape("X[0] f32[3, 1] and X[1] f32[1]")):
        infer("sum", {}, X=[f32(3, 1), f32(1)])


def test_increment_takes_one_element():
    with pytest.raises(ShapeError, match=re.escape("X is f32[2, 3], expected one element")):
        infer("increment", {}, X=f32(2, 3))


def test_logical_and_needs_one_shape():
    with pytest.raises(ShapeError, match=re.escape("X f32[3, 2] and Y f32[2]")):
        infer("logical_and", {}, X=f32(3, 2), Y=f32(2))
