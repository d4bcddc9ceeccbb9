"""What is special about reductions and softmax."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType


def infer(kind, shape, dtype=DType.FP32, **attrs):
    return find(kind)(attrs).infer_types({"X": TensorType(dtype, shape)})


@pytest.mark.parametrize("kind", ["mean", "reduce_sum", "reduce_mean"])
def test_nothing_has_no_axes(kind):
    attrs = {} if kind == "mean" else {"reduce_all": True}
    assert infer(kind, (Dim.named("N"), 3), **attrs)["Out"].shape == (1,)


@pytest.mark.parametrize("dim", [[2], [0, -3]])
def test_axis_beyond_the_shape(dim):
    with pytest.raises(ShapeError, match=re.escape(f"dim {dim} is out of range for X of rank 2")):
        infer("reduce_sum", (3, 4), dim=dim)


def test_mean_is_of_floats():
    with pytest.raises(ShapeError, match=re.escape("mean: X is i64[3]")):
        infer("mean", (3,), DType.INT64)


def test_average_of_whole_numbers_is_cut_off_towards_zero():
    found = find("reduce_mean")({"dim": [1]}).evaluate({"X": np.array([[1, 2, 2], [-1, -2, -2]])})
    np.testing.assert_array_equal(found["Out"], [1, -1])


@pytest.mark.parametrize("kind", ["reduce_all", "reduce_any"])
def test_logic_is_of_booleans(kind):
    with pytest.raises(ShapeError, match=re.escape(f"{kind}: X is f32[3], expected element type")):
        infer(kind, (3,))


@pytest.mark.parametrize("kind", ["reduce_max", "reduce_min"])
def test_all_that_are_equal_to_an_extreme_get_its_gradient(kind):
    X = np.array([[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]], np.float32)
    above = np.array([3.0, 5.0], np.float32)
    given = {"X": X, "Out": X[:, 0], "Out@GRAD": above}
    found = find(kind + "_grad")({"dim": [1]}).evaluate(given)["X@GRAD"]
    np.testing.assert_array_equal(found, [[3.0] * 3, [5.0] * 3])


def test_gradient_of_a_product_with_zeros_is_finite():
    X = np.array([[2.0, 0.0, 3.0], [0.0, 4.0, 0.0]], np.float32)
    given = {"X": X, "Out": np.zeros(2, np.float32), "Out@GRAD": np.ones(2, np.float32)}
    found = find("reduce_prod_grad")({"dim": [1]}).evaluate(given)["X@GRAD"]
    np.testing.assert_array_equal(found, [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0]])


def test_logsumexp_of_large_numbers_is_finite():
    found = find("logsumexp")({"axis": [0]}).evaluate({"X": np.array([1000.0, 1000.0])})["Out"]
    np.testing.assert_allclose(found, [1000.0 + np.log(2.0)])


def test_softmax_has_no_probability_of_zero():
    """As the reference, which counts what lies more than 64 below the largest as 64 below it."""
    X = np.array([[200.0, 0.0, 0.0, -100.0]], np.float32)
    found = find("softmax")({}).evaluate({"X": X})["Out"]
    np.testing.assert_allclose(found, [[1.0, 1.6038109e-28, 1.6038109e-28, 1.6038109e-28]])
