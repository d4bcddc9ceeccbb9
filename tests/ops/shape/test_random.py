"""What is special about random numbers: seeds, ranges, and the two manners of dropout."""

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

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
    result = dropped(fix_seed=True, seed=3)
    assert abs(result["Mask"].mean() - 0.75) < 0.02
    np.testing.assert_array_equal(result["Out"], X * result["Mask"])


def test_dropout_upscales_what_it_keeps():
    result = dropped(fix_seed=True, seed=3, **UPSCALED)
    np.testing.assert_allclose(result["Out"], X * result["Mask"] / 0.75, rtol=1e-6)


def test_seed_of_dropout_counts_only_when_fixed():
    assert (dropped(seed=3)["Mask"] != dropped(seed=3)["Mask"]).any()


@pytest.mark.parametrize(("attrs", "factor"), [({}, 0.75), (UPSCALED, 1.0)])
def test_dropout_in_testing(attrs, factor):
    np.testing.assert_allclose(dropped(is_test=True, **attrs)["Out"], X * factor, rtol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"dropout_prob": 1.5}, "'dropout_prob' is 1.5, expected 0 to 1"),
        ({"dropout_implementation": "upscale"}, "expected 'downgrade_in_infer' or"),
    ],
)
def test_dropout_rejects_attributes(attrs, message):
    with pytest.raises(BadAttribute, match=message):
        find("dropout")(attrs).infer_types({"X": TensorType(DType.FP32, (2,))})


def test_dropout_is_of_floats():
    with pytest.raises(ShapeError, match="expected floating point"):
        find("dropout")({}).infer_types({"X": TensorType(DType.INT64, (2,))})


def test_a_fixed_seed_of_zero_is_one_too():
    np.testing.assert_array_equal(dropped(fix_seed=True)["Mask"], dropped(fix_seed=True)["Mask"])


def test_seed_of_dropout_from_a_tensor():
    op = find("dropout")({"dropout_prob": 0.25, "fix_seed": True, "seed": 9})
    masks = [op.evaluate({"X": X, "Seed": np.array([seed])})["Mask"] for seed in (5, 5, 6)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0] != masks[2]).any()


@pytest.mark.parametrize(("probability", "kept"), [(0.0, 1), (1.0, 0)])
@pytest.mark.parametrize("attrs", [{}, UPSCALED])
def test_dropout_of_nothing_and_of_all(probability, kept, attrs):
    result = dropped(**attrs | {"dropout_prob": probability})
    assert (result["Mask"] == kept).all()
    np.testing.assert_array_equal(result["Out"], X * kept)


def test_whole_numbers_are_even_over_their_range():
    values = drawn("randint", low=-2, high=3, seed=1)
    assert values.dtype == np.int64
    counts = np.bincount(values + 2, minlength=5)
    assert len(counts) == 5
    assert counts.min() > 3_600


def test_a_range_of_no_whole_number():
    with pytest.raises(BadAttribute, match="'low' 3, 'high' 3"):
        find("randint")({"shape": [2], "low": 3, "high": 3}).infer_types({})


def test_permutations_have_every_number_once():
    result = find("randperm")({"n": 50}).evaluate({})["Out"]
    assert sorted(result.tolist()) == list(range(50))


def test_bernoulli_keeps_its_probability():
    result = find("bernoulli")({}).evaluate({"X": np.full(20_000, 0.3, np.float32)})["Out"]
    assert set(result.tolist()) == {0.0, 1.0}
    assert abs(result.mean() - 0.3) < 0.02


def test_choices_by_weight():
    weights = np.tile(np.array([0.2, 0.0, 0.5, 0.3], np.float32), (20_000, 1))
    result = find("sampling_id")({}).evaluate({"X": weights})["Out"]
    shares = np.bincount(result, minlength=4) / len(result)
    np.testing.assert_allclose(shares, [0.2, 0.0, 0.5, 0.3], atol=0.02)


def test_crops_have_random_offsets():
    image = np.arange(4 * 6 * 7).reshape(4, 6, 7)
    op = find("random_crop")({"shape": [2, 3]})
    result = op.evaluate({"X": image, "Seed": np.array([5])})
    places = {int(part[0, 0] - 42 * i) for i, part in enumerate(result["Out"])}
    assert len(places) > 1
    steps = result["Out"] - result["Out"][:, :1, :1]
    np.testing.assert_array_equal(steps, np.tile([[0, 1, 2], [7, 8, 9]], (4, 1, 1)))
    after = op.evaluate({"X": image, "Seed": result["SeedOut"]})
    assert (after["SeedOut"] != result["SeedOut"]).all()


def test_shuffle_has_an_inverse():
    rows = np.arange(12.0).reshape(6, 2)
    result = find("shuffle_batch")({}).evaluate({"X": rows, "Seed": np.array([5])})
    np.testing.assert_array_equal(result["Out"], rows[result["ShuffleIdx"]])
    assert sorted(result["ShuffleIdx"].tolist()) == list(range(6))


def test_seed_is_drawn_if_there_is_none():
    assert find("seed")({"seed": 7}).evaluate({})["Out"].tolist() == [7]
    assert len({int(find("seed")({}).evaluate({})["Out"][0]) for _ in range(8)}) > 1
