"""Thresholds of activations."""

import numpy as np
import pytest

from fluid.contrib.slim.quantization.calibration import Samples, kl_threshold

DRAWN = np.random.RandomState(0)
VALUES = [
    np.abs(DRAWN.randn(4000)),
    np.append(np.abs(DRAWN.randn(2000)), 9.0),
    np.arange(4.0),
]
EXPECTED = [3.308455171645619, 3.0080336909741163, 2.000244140625]
"""Thresholds of release 1.8.5."""


@pytest.mark.parametrize(("values", "expected"), list(zip(VALUES, EXPECTED, strict=True)))
def test_kl_thresholds_are_those_of_the_reference(values, expected):
    assert kl_threshold(values.astype(np.float32)) == pytest.approx(expected)


def test_samples_are_magnitudes_in_memory_or_in_files(tmp_path):
    for folder in (None, tmp_path / "cache"):
        samples = Samples(folder)
        samples.add("a/b", np.array([[1.0, -2.0]]))
        samples.add("a/b", np.array([-3.0]))
        assert samples.take("a/b").tolist() == [1.0, 2.0, 3.0]
    assert list((tmp_path / "cache").iterdir()) == []
