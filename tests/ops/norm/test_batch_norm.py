"""batch_norm: what it keeps and where, its precision, and what it refuses."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from compiler.ops.norm.batch_norm_numpy import normalize_by_batch
from tests.ops.generated import assert_matches_reference
from tests.ops.samples.norm import normalisation


def types(x: tuple[int, ...], **vectors: tuple[int, ...]) -> dict[str, TensorType]:
    """The input types for X of a shape; vectors have 3 channels by default."""
    shapes = dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), (3,)) | vectors
    return {s: TensorType(DType.FP32, shape) for s, shape in {"X": x, **shapes}.items()}


def test_running_statistics_move_by_the_momentum() -> None:
    """Running = momentum*running + (1 - momentum)*batch, of the variance without correction."""
    sample = normalisation((4, 3, 2, 5), 3, momentum=0.8)
    created = find("batch_norm")(sample.attrs).evaluate(sample.inputs)
    x = sample.inputs["X"]
    for slot, kept, batch in (
        ("MeanOut", "Mean", x.mean(axis=(0, 2, 3))),
        ("VarianceOut", "Variance", x.var(axis=(0, 2, 3))),
    ):
        np.testing.assert_allclose(
            created[slot], 0.8 * sample.inputs[kept] + 0.2 * batch, rtol=1e-6
        )
    inverse = 1 / np.sqrt(x.var(axis=(0, 2, 3)) + 1e-5)
    np.testing.assert_allclose(created["SavedVariance"], inverse, rtol=1e-6)


def test_a_channel_far_from_zero_keeps_its_digits() -> None:
    """The variance is that of centred values; a difference of large squares would be lost."""
    sample = normalisation((1, 512, 3), 3, data_layout="NHWC")
    inputs = [sample.inputs[slot] for slot in ("Scale", "Bias", "Mean", "Variance")]
    x = sample.inputs["X"] + np.float32(4096.0)
    y, mean, inverse, spare = np.empty_like(x), *np.empty((3, 3), np.float32)
    kept = ((inputs[2], inputs[2].copy()), (inputs[3], inputs[3].copy()))
    normalize_by_batch(x, y, *inputs[:2], (mean, inverse), kept, 0.9, 1e-5, spare)
    wide = {**sample.inputs, "X": x.astype(np.float64)}
    want = find("batch_norm")(sample.attrs).evaluate(wide)
    np.testing.assert_allclose(y, want["Y"], atol=2e-3)
    np.testing.assert_allclose(inverse, want["SavedVariance"], rtol=1e-5)


TEXT = """graph main {{
  feed x: f32[N, 3{places}]
  param s: f32[3]
  param b: f32[3]
  param m: f32[3]
  param v: f32[3]
  (MeanOut=m#1: f32[3] over m, SavedMean=p: f32[3], SavedVariance=q: f32[3], VarianceOut=v#1: f32[3] over v, Y=y: f32[N, 3{places}]) = batch_norm(Bias=b, Mean=m, Scale=s, Variance=v, X=x) {attrs}
  (Bias@GRAD=e: f32[3], Scale@GRAD=t: f32[3], X@GRAD=z: f32[N, 3{places}]) = batch_norm_grad(Bias=b, SavedMean=p, SavedVariance=q, Scale=s, X=x, Y@GRAD=y) {attrs}
  return y, z, e, t, p, q
}}"""


@pytest.mark.parametrize("attrs", [{}, {"is_test": True}, {"use_global_stats": True}])
@pytest.mark.parametrize("places", ["", ", 1, 1", ", 4, 5"])
def test_module_serves_every_batch_and_keeps_statistics(attrs: Any, places: str) -> None:
    """A batch of one, too: without places, its channels have one value, and nothing is learnt."""
    text = TEXT.format(places=places, attrs=attrs or "")
    assert_matches_reference(text, {"N": 5}, {"N": 1}, {"N": 8})


def test_one_value_passes_and_leaves_statistics() -> None:
    sample = normalisation((1, 3, 1, 1), 3)
    created = find("batch_norm")().evaluate(sample.inputs)
    np.testing.assert_array_equal(created["Y"], sample.inputs["X"])
    np.testing.assert_array_equal(created["VarianceOut"], sample.inputs["Variance"])


def test_frozen_statistics_are_not_moved() -> None:
    sample = normalisation((4, 3, 2), 3, use_global_stats=True)
    created = find("batch_norm")(sample.attrs).evaluate(sample.inputs)
    np.testing.assert_array_equal(created["MeanOut"], sample.inputs["Mean"])
    np.testing.assert_array_equal(created["SavedMean"], sample.inputs["Mean"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (types((4,)), r"X is f32\[4\], expected floats with a batch and channels"),
        (types((4, 5, 2)), r"X f32\[4, 5, 2\] and Scale f32\[3\] do not fit: there are 5 channels"),
        (types((4, 3, 2), Variance=(3, 1)), r"and Variance f32\[3, 1\] do not fit"),
    ],
)
def test_batch_norm_shape_errors(given: dict[str, TensorType], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        find("batch_norm")().infer_types(given)


def test_statistics_have_no_gradient() -> None:
    cls = find("batch_norm_grad")
    assert set(cls.outputs()) == {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}
    assert set(cls.inputs()) == {"X", "Scale", "Bias", "SavedMean", "SavedVariance", "Y@GRAD"}
