"""Random changes of colours, compared with what release 1.8.5 draws and computes."""

from collections.abc import Callable

import numpy as np
import pytest

from fluid.incubate.hapi.vision import (
    BrightnessTransform,
    ColorJitter,
    ContrastTransform,
    HueTransform,
    SaturationTransform,
)

PIXELS = np.array([[[200, 30, 90], [10, 10, 10]], [[0, 255, 128], [255, 255, 0]]], np.uint8)

"""An image of four pixels; below it, the results of release 1.8.5 after `np.random.seed(3)`."""
BRIGHT = [[[208, 31, 93], [10, 10, 10]], [[0, 255, 133], [255, 255, 0]]]
CONTRAST = [[[203, 26, 89], [5, 5, 5]], [[0, 255, 128], [255, 255, 0]]]
SATURATED = [[[208, 27, 91], [9, 9, 9]], [[0, 255, 124], [255, 255, 0]]]
TURNED = [[[200, 30, 134], [10, 10, 10]], [[0, 255, 66], [255, 192, 0]]]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (BrightnessTransform, 0.4, BRIGHT),
        (ContrastTransform, 0.4, CONTRAST),
        (SaturationTransform, 0.6, SATURATED),
        (HueTransform, 0.4, TURNED),
    ],
)
def test_recorded_changes(kind: Callable[[float], object], value: float, expected: list) -> None:
    for dtype in ("uint8", "float32"):
        np.random.seed(3)
        changed = kind(value)(PIXELS.astype(dtype))
        assert changed.dtype == dtype
        np.testing.assert_allclose(changed, expected, atol=1.0)


def test_values() -> None:
    for kind in (BrightnessTransform, ContrastTransform, SaturationTransform, HueTransform):
        assert kind(0)(PIXELS) is PIXELS
        with pytest.raises(ValueError, match=r"value should be .*, but is -1"):
            kind(-1)
    with pytest.raises(ValueError, match=r"hue value should be in \[0.0, 0.5\], but is 0.6"):
        HueTransform(0.6)


def test_jitter_makes_all_changes() -> None:
    jitter = ColorJitter(0.4, 0.3, 0.2, 0.1)
    assert sorted(transform.value for transform in jitter.transforms) == [0.1, 0.2, 0.3, 0.4]
    assert jitter(PIXELS).shape == PIXELS.shape and ColorJitter()(PIXELS) is PIXELS
