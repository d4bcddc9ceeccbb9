"""What is special about reductions and softmax."""

import re

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.errors import ShapeError
from compiler.freeze import freeze
from compiler.ir.dims import Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.test_generated import NOBODY, Case, graph_of

TARGETS = [NumpyTarget(), *([NativeTarget()] if detected() else [])]


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
    result = find("reduce_mean")({"dim": [1]}).evaluate({"X": np.array([[1, 2, 2], [-1, -2, -2]])})
    np.testing.assert_array_equal(result["Out"], [1, -1])


@pytest.mark.parametrize("kind", ["reduce_all", "reduce_any"])
def test_logic_is_of_booleans(kind):
    with pytest.raises(ShapeError, match=re.escape(f"{kind}: X is f32[3], expected element type")):
        infer(kind, (3,))


@pytest.mark.parametrize("kind", ["reduce_max", "reduce_min"])
def test_all_that_are_equal_to_an_extreme_get_its_gradient(kind):
    X = np.array([[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]], np.float32)
    above = np.array([3.0, 5.0], np.float32)
    inputs = {"X": X, "Out": X[:, 0], "Out@GRAD": above}
    result = find(kind + "_grad")({"dim": [1]}).evaluate(inputs)["X@GRAD"]
    np.testing.assert_array_equal(result, [[3.0] * 3, [5.0] * 3])


def test_gradient_of_a_product_with_zeros_is_finite():
    X = np.array([[2.0, 0.0, 3.0], [0.0, 4.0, 0.0]], np.float32)
    inputs = {"X": X, "Out": np.zeros(2, np.float32), "Out@GRAD": np.ones(2, np.float32)}
    result = find("reduce_prod_grad")({"dim": [1]}).evaluate(inputs)["X@GRAD"]
    np.testing.assert_array_equal(result, [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("scale", [1.0, 1e6], ids=["near 1", "parts overflow"])
def test_products_of_many_factors_are_exact(target, scale):
    """Each rounding to float32 would add up, and parts of the product be infinite or zero."""
    X = np.random.default_rng(1).uniform(0.999, 1.001, (20000, 2)).astype(np.float32)
    X[:20] *= np.float32(scale)
    X[-20:] /= np.float32(scale)
    wide = X.astype(np.float64)
    whole = wide.prod(axis=0)
    inputs = {"X": X, "Out": whole.astype(np.float32), "Out@GRAD": np.ones(2, np.float32)}
    forward = Case("reduce_prod", {"dim": [0]}, {"X": X}, {"Out": inputs["Out"]})
    others = (whole / wide).astype(np.float32)
    backward = Case("reduce_prod_grad", {"dim": [0]}, inputs, {"X@GRAD": others})
    for case in (forward, backward):
        (slot,) = case.results
        graph, feed = graph_of(case, [slot], NOBODY)
        run_passes(graph, pipeline(Options(), target), Context())
        (result,) = runtime.load(target.emit(freeze(graph)))(feed)
        np.testing.assert_allclose(result, case.results[slot], rtol=2e-7)
        meant = find(case.op)(case.attrs).evaluate(case.values)[slot]
        np.testing.assert_allclose(meant, case.results[slot], rtol=2e-7)


def test_logsumexp_of_large_numbers_is_finite():
    result = find("logsumexp")({"axis": [0]}).evaluate({"X": np.array([1000.0, 1000.0])})["Out"]
    np.testing.assert_allclose(result, [1000.0 + np.log(2.0)])


def test_softmax_has_no_probability_of_zero():
    """As the reference, which counts what lies more than 64 below the largest as 64 below it."""
    X = np.array([[200.0, 0.0, 0.0, -100.0]], np.float32)
    result = find("softmax")({}).evaluate({"X": X})["Out"]
    np.testing.assert_allclose(result, [[1.0, 1.6038109e-28, 1.6038109e-28, 1.6038109e-28]])
