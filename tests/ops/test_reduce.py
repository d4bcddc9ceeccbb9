"""What is special about reductions, softmax and top_k."""

import re

import numpy as np
import pytest

import compiler.ops
from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

assert compiler.ops, "importing it fills the registry"


def infer(kind, shape, dtype=DType.FP32, **attrs):
    return find(kind)(attrs).infer_types({"X": TensorType(dtype, shape)})


@pytest.mark.parametrize("kind", ["mean", "reduce_sum", "reduce_mean"])
def test_nothing_has_no_axes(kind):
    attrs = {} if kind == "mean" else {"reduce_all": True}
    assert infer(kind, (Dim.named("N"), 3), **attrs)["Out"].shape == (1,)


@pytest.mark.parametrize("dim", [[2], [0, -3]])
def test_axis_beyond_the_shape(dim):
    with pytest.raises(ShapeError, match=re.escape(f"dim {dim} reaches beyond the 2 axes of X")):
        infer("reduce_sum", (3, 4), dim=dim)


@pytest.mark.parametrize("kind", ["mean", "reduce_mean"])
def test_means_are_of_floats(kind):
    with pytest.raises(ShapeError, match=re.escape(f"{kind}: X is i64[3]")):
        infer(kind, (3,), DType.INT64)


def test_softmax_gives_no_probability_of_zero():
    """As the reference, which counts what lies more than 64 below the largest as 64 below it."""
    X = np.array([[200.0, 0.0, 0.0, -100.0]], np.float32)
    found = find("softmax")({}).evaluate({"X": X})["Out"]
    np.testing.assert_allclose(found, [[1.0, 1.6038109e-28, 1.6038109e-28, 1.6038109e-28]])


def test_top_k_of_too_few_columns():
    with pytest.raises(ShapeError, match=re.escape("X is f32[3, 4], expected at least k=5")):
        infer("top_k", (3, 4), k=5)
    assert infer("top_k", (3, UNKNOWN), k=5)["Indices"] == TensorType(DType.INT64, (3, 5))


def test_top_k_prefers_the_first_of_equals():
    found = find("top_k")({"k": 3}).evaluate({"X": np.array([[1.0, 3.0, 3.0, 2.0]])})
    np.testing.assert_array_equal(found["Indices"], [[1, 2, 3]])
