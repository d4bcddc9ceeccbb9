"""What is special about random numbers: seeds, ranges, and the two manners of dropout."""

import numpy as np
import pytest

import compiler.ops
from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

assert compiler.ops, "importing it fills the registry"

X = np.linspace(1.0, 2.0, 20_000, dtype=np.float32)
UPSCALED = {"dropout_implementation": "upscale_in_train"}


def drawn(kind, **attrs):
    return find(kind)({"shape": [20_000], **attrs}).evaluate({})["Out"]


def dropped(**attrs):
    return find("dropout")({"dropout_prob": 0.25, **attrs}).evaluate({"X": X})


@pytest.mark.parametrize("kind", ["uniform_random", "gaussian_random"])
def test_seed_decides(kind):
    np.testing.assert_array_equal(drawn(kind, seed=5), drawn(kind, seed=5))
    assert (drawn(kind, seed=5) != drawn(kind, seed=6)).any()
    assert (drawn(kind) != drawn(kind)).any()


def test_uniform_is_even_over_its_range():
    values = drawn("uniform_random", min=-3.0, max=1.0, seed=1)
    assert -3.0 <= values.min() < -2.99
    assert 0.99 < values.max() <= 1.0
    assert abs(values.mean() + 1.0) < 0.05


def test_gaussian_has_mean_and_deviation():
    values = drawn("gaussian_random", mean=2.0, std=0.5, seed=1)
    assert abs(values.mean() - 2.0) < 0.02
    assert abs(values.std() - 0.5) < 0.02


def test_random_numbers_are_floats():
    with pytest.raises(BadAttribute, match="'dtype' is i64, expected f32 or f64"):
        find("uniform_random")({"shape": [2], "dtype": 3}).infer_types({})


def test_dropout_keeps_its_share():
    found = dropped(fix_seed=True, seed=3)
    assert abs(found["Mask"].mean() - 0.75) < 0.02
    np.testing.assert_array_equal(found["Out"], X * found["Mask"])


def test_dropout_upscales_what_it_keeps():
    found = dropped(fix_seed=True, seed=3, **UPSCALED)
    np.testing.assert_allclose(found["Out"], X * found["Mask"] / 0.75, rtol=1e-6)


def test_seed_of_dropout_counts_only_when_fixed():
    assert (dropped(seed=3)["Mask"] != dropped(seed=3)["Mask"]).any()


@pytest.mark.parametrize(("attrs", "factor"), [({}, 0.75), (UPSCALED, 1.0)])
def test_dropout_in_testing(attrs, factor):
    np.testing.assert_allclose(dropped(is_test=True, **attrs)["Out"], X * factor, rtol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"dropout_prob": 1.5}, "'dropout_prob' is 1.5, not from 0 to 1"),
        ({"dropout_implementation": "upscale"}, "expected 'downgrade_in_infer' or"),
    ],
)
def test_dropout_refuses_attributes(attrs, message):
    with pytest.raises(BadAttribute, match=message):
        find("dropout")(attrs).infer_types({"X": TensorType(DType.FP32, (2,))})


def test_dropout_is_of_floats():
    with pytest.raises(ShapeError, match="expected floating point"):
        find("dropout")({}).infer_types({"X": TensorType(DType.INT64, (2,))})
