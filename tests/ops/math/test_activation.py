"""What is special about functions of one tensor: their edges, their precision, their options."""

import math
import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType


def f32(*shape):
    return TensorType(DType.FP32, shape)


def apply(op, X, **attrs):
    return find(op)(attrs).evaluate({"X": np.asarray(X)})["Out"]


def slope(op, X, **attrs):
    """Return the gradient of the sum of an op's results."""
    X = np.asarray(X, np.float32)
    inputs = {"X": X, "Out": apply(op, X, **attrs), "Out@GRAD": np.ones_like(X)}
    return find(op + "_grad")(attrs).evaluate(inputs)["X@GRAD"]


# ---- precision -----------------------------------------------------------------------------------

EVERYWHERE = np.linspace(-7.0, 7.0, 2003)
ERF = np.array([math.erf(x) for x in EVERYWHERE])
NORMAL = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in EVERYWHERE])


@pytest.mark.parametrize(("dtype", "off"), [(np.float32, 2e-7), (np.float64, 1e-14)])
def test_error_function(dtype, off):
    result = apply("erf", EVERYWHERE.astype(dtype))
    assert result.dtype == dtype
    np.testing.assert_allclose(result, ERF, rtol=0, atol=off)


@pytest.mark.parametrize(("dtype", "off"), [(np.float32, 2e-7), (np.float64, 1e-13)])
def test_gelu_is_exact(dtype, off):
    result = apply("gelu", EVERYWHERE.astype(dtype))
    np.testing.assert_allclose(result, EVERYWHERE * NORMAL, rtol=off, atol=5 * off)


def test_error_function_of_small_numbers_keeps_its_digits():
    for dtype in (np.float32, np.float64):
        np.testing.assert_allclose(apply("erf", np.array([1e-6], dtype)), [math.erf(1e-6)], 1e-6)


def test_nothing_overflows():
    """Far from 0 every activation is a number, and silently so."""
    ends = np.array([-1e4, -200.0, 200.0, 1e4], np.float32)
    smooth = ["logsigmoid", "softplus", "soft_relu", "swish", "silu", "mish", "gelu", "elu", "selu"]
    with np.errstate(all="raise", under="ignore"):
        for op in smooth:
            assert np.isfinite(apply(op, ends)).all(), op
            assert np.isfinite(slope(op, ends)).all(), op


# ---- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attrs", "X", "out"),
    [
        ("hard_shrink", {"threshold": 0.5}, [-0.6, -0.5, 0.5, 0.6], [0.0 - 0.6, 0, 0, 0.6]),
        ("softshrink", {"lambda": 0.5}, [-2.0, -0.5, 0.25, 1.0], [-1.5, 0, 0, 0.5]),
        ("thresholded_relu", {}, [-1.0, 1.0, 1.5], [0, 0, 1.5]),
        ("brelu", {"t_min": -1.0, "t_max": 2.0}, [-3.0, 0.5, 5.0], [-1.0, 0.5, 2.0]),
        ("hard_sigmoid", {}, [-9.0, 0.0, 9.0], [0.0, 0.5, 1.0]),
        ("hard_swish", {}, [-3.0, 1.0, 3.0, 6.0], [0.0, 2.0 / 3.0, 3.0, 6.0]),
        ("leaky_relu", {"alpha": 0.5}, [-2.0, 2.0], [-1.0, 2.0]),
        ("leaky_relu", {"alpha": 1.5}, [-2.0, 2.0], [-2.0, 3.0]),
        ("round", {}, [-2.5, -0.5, 0.4, 0.6, 1.5], [-2.0, 0.0, 0.0, 1.0, 2.0]),
    ],
)
def test_values_at_edges(op, attrs, X, out):
    np.testing.assert_allclose(apply(op, np.array(X, np.float32), **attrs), out, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs", "X", "out"),
    [
        ("brelu", {"t_min": -1.0, "t_max": 2.0}, [-1.0, 0.0, 2.0], [0, 1, 0]),
        ("hard_shrink", {}, [-0.5, 0.0, 0.5, 0.6], [0, 0, 0, 1]),
        ("hard_swish", {}, [-3.0, 0.0, 3.0], [0, 0.5, 1]),
        ("leaky_relu", {"alpha": 0.1}, [-1.0, 0.0, 1.0], [0.1, 0.1, 1]),
        ("relu6", {}, [0.0, 3.0, 6.0], [0, 1, 0]),
        ("elu", {"alpha": 0.5}, [0.0, 1.0], [0.5, 1]),
    ],
)
def test_slopes_at_edges(op, attrs, X, out):
    np.testing.assert_allclose(slope(op, X, **attrs), out, rtol=1e-6)


def test_gradient_of_maxout_reaches_the_first_of_equals():
    np.testing.assert_array_equal(
        slope_of_maxout(np.ones((1, 4, 1, 1), np.float32)).ravel(), [1, 0, 1, 0]
    )


def slope_of_maxout(X):
    attrs = {"groups": 2}
    Out = apply("maxout", X, **attrs)
    inputs = {"X": X, "Out": Out, "Out@GRAD": np.ones_like(Out)}
    return find("maxout_grad")(attrs).evaluate(inputs)["X@GRAD"]


# ---- options and missed ------------------------------------------------------------------------


def test_bounds_in_the_wrong_order():
    with pytest.raises(BadAttribute, match=r"clip: min is 3.0, expected no more than max=1.0"):
        find("clip")({"min": 3.0, "max": 1.0}).infer_types({"X": f32(3)})


def test_tensors_go_before_attributes():
    X, one = np.array([1.0, 2.0, 3.0], np.float32), np.array([2.0], np.float32)
    result = find("clip")({"min": 0.0, "max": 1.0}).evaluate({"X": X, "Max": one})["Out"]
    np.testing.assert_array_equal(result, [1.0, 2.0, 2.0])
    result = find("pow")({"factor": 9.0}).evaluate({"X": X, "FactorTensor": one})["Out"]
    np.testing.assert_array_equal(result, [1.0, 4.0, 9.0])


@pytest.mark.parametrize(
    ("attrs", "alpha", "error", "message"),
    [
        ({"mode": "row"}, (1,), BadAttribute, "mode is 'row', expected all, channel or element"),
        ({"mode": "channel"}, (4,), ShapeError, "X f32[2, 3, 5] and Alpha f32[4] do not fit"),
        ({"mode": "all"}, (3,), ShapeError, "do not fit in mode 'all'"),
        ({"mode": "element"}, (1, 3), ShapeError, "do not fit in mode 'element'"),
    ],
)
def test_slopes_that_do_not_fit(attrs, alpha, error, message):
    with pytest.raises(error, match=re.escape(message)):
        find("prelu")(attrs).infer_types({"X": f32(2, 3, 5), "Alpha": f32(*alpha)})


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"groups": 4}, "groups=4, expected 2 or more that divide the 6"),
        ({"groups": 1}, "2 or more"),
    ],
)
def test_groups_that_do_not_divide_the_channels(attrs, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        find("maxout")(attrs).infer_types({"X": f32(2, 6, 3, 3)})
