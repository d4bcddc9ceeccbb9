"""What is special about products, norms and tests of values: shapes they refuse, odd arguments."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

N = Dim.named("N")


def f32(*shape):
    return TensorType(DType.FP32, shape)


def infer(kind, attrs=None, **shapes):
    return find(kind)(attrs).infer_types({slot: f32(*shape) for slot, shape in shapes.items()})


@pytest.mark.parametrize(
    ("kind", "attrs", "shapes", "message"),
    [
        ("dot", {}, {"X": (2, 3, 4), "Y": (2, 3, 4)}, "expected one axis or two"),
        ("dot", {}, {"X": (2, 3), "Y": (3,)}, "must have one shape"),
        ("bmm", {}, {"X": (2, 3, 4), "Y": (2, 3, 4)}, "expected [n, i, j] and [n, j, k]"),
        ("bmm", {}, {"X": (3, 4), "Y": (4, 3)}, "expected [n, i, j] and [n, j, k]"),
        (
            "addmm",
            {},
            {"Input": (4,), "X": (3, 4), "Y": (4, 4)},
            "expected matrices, with as many columns",
        ),
        ("addmm", {}, {"Input": (2, 4), "X": (3, 4), "Y": (4, 4)}, "Input does not broadcast"),
        ("cross", {}, {"X": (2, 4), "Y": (2, 4)}, "expected size 3 along some axis"),
        ("cross", {"dim": 0}, {"X": (2, 3), "Y": (2, 3)}, "expected size 3 along axis 0"),
        ("trace", {"dim2": 2}, {"Input": (3, 4)}, "Input is f32[3, 4], which has no axes -2, 2"),
        ("trace", {"dim1": 1}, {"Input": (3, 4)}, "dim1 and dim2 are both axis 1"),
        (
            "bilinear_tensor_product",
            {},
            {"X": (2, 3), "Y": (2, 4), "Weight": (5, 4, 3)},
            "expected [n, i], [n, j] and [k, i, j]",
        ),
        ("matmul_v2", {}, {"X": (3, 4), "Y": (3, 4)}, "do not fit with trans_x=False"),
        ("matmul_v2", {}, {"X": (2, 3, 4), "Y": (3, 4, 5)}, "do not broadcast"),
        ("norm", {"axis": 2}, {"X": (3, 4)}, "which has no axis 2"),
        ("p_norm", {"axis": -3}, {"X": (3, 4)}, "which has no axis -3"),
        ("cos_sim", {}, {"X": (4, 3), "Y": (2, 3)}, "equally many rows or one of Y"),
        ("cos_sim", {}, {"X": (4, 3), "Y": (4, 2)}, "expected equal row sizes"),
        ("squared_l2_distance", {}, {"X": (4,), "Y": (4,)}, "expected equal row sizes"),
        ("dist", {}, {"X": (4, 3), "Y": (4, 2)}, "do not broadcast"),
        ("allclose", {}, {"Input": (4,), "Other": (3,)}, "must have one shape"),
    ],
)
def test_shapes_that_do_not_fit(kind, attrs, shapes, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        infer(kind, attrs, **shapes)


@pytest.mark.parametrize(
    ("kind", "attrs", "shapes", "out"),
    [
        ("dot", {}, {"X": (N, 3), "Y": (N, 3)}, (N, 1)),
        ("cos_sim", {}, {"X": (N, 3), "Y": (1, 3)}, (N, 1)),
        ("cross", {}, {"X": (N, 3), "Y": (N, 3)}, (N, 3)),
        ("cross", {}, {"X": (UNKNOWN, 4), "Y": (UNKNOWN, 4)}, (UNKNOWN, 4)),
        ("matmul_v2", {}, {"X": (N, 8, 5, 4), "Y": (N, 8, 4, 5)}, (N, 8, 5, 5)),
        ("matmul_v2", {}, {"X": (N, 1, 5, 4), "Y": (7, 4, 2)}, (N, 7, 5, 2)),
        ("matmul_v2", {}, {"X": (4,), "Y": (4,)}, (1,)),
        ("p_norm", {"keepdim": True}, {"X": (N, 3)}, (N, 1)),
        ("p_norm", {"axis": 0}, {"X": (5,)}, (1,)),
        ("trace", {}, {"Input": (N, 3, 4)}, (N,)),
    ],
)
def test_shapes(kind, attrs, shapes, out):
    assert infer(kind, attrs, **shapes)["Out"].shape == out


def test_cross_finds_its_axis_where_sizes_become_known():
    X, Y = np.eye(3)[:2], np.eye(3)[1:]
    np.testing.assert_array_equal(
        find("cross")({}).evaluate({"X": X, "Y": Y})["Out"], [[0, 0, 1], [1, 0, 0]]
    )
    with pytest.raises(ValueError, match="no axis of X has size 3"):
        find("cross")({}).evaluate({"X": X[:, :2], "Y": Y[:, :2]})


def test_columns_of_a_diagonal_are_the_later_axis():
    Input = np.arange(12.0).reshape(3, 4)
    for dims in ({"dim1": 0, "dim2": 1}, {"dim1": 1, "dim2": 0}):
        result = find("trace")({"offset": 1, **dims}).evaluate({"Input": Input})["Out"]
        np.testing.assert_array_equal(result, [1.0 + 6.0 + 11.0])


def test_norms_of_nothing_but_zeros_have_gradient_zero():
    zeros, one = np.zeros((2, 3)), np.ones(1)
    inputs = {"X": zeros, "Y": zeros, "Out": np.zeros(1), "Out@GRAD": one}
    result = find("dist_grad")({"p": 2.0}).evaluate(inputs)
    np.testing.assert_array_equal(result["X@GRAD"], zeros)
    inputs = {"X": zeros, "Out": np.zeros(2), "Out@GRAD": np.ones(2)}
    np.testing.assert_array_equal(find("p_norm_grad")({}).evaluate(inputs)["X@GRAD"], zeros)


def test_rows_of_zeros_have_a_length():
    result = find("cos_sim")({}).evaluate({"X": np.zeros((1, 2)), "Y": np.ones((1, 2))})
    assert (result["Out"][0, 0], result["XNorm"][0, 0]) == (0.0, 1e-4)


def test_allclose_equal_nan():
    odd = np.array([np.nan, 1.0])
    for equal_nan in (False, True):
        op = find("allclose")({"equal_nan": equal_nan})
        assert op.evaluate({"Input": odd, "Other": odd})["Out"] == [equal_nan]
