"""Changes of images, `paddle.incubate.hapi.vision` of release 1.8.5."""

from fluid.incubate.hapi.vision import transforms
from fluid.incubate.hapi.vision.transforms import (
    BrightnessTransform,
    ColorJitter,
    ContrastTransform,
    HueTransform,
    SaturationTransform,
)

__all__ = [
    "BrightnessTransform",
    "ColorJitter",
    "ContrastTransform",
    "HueTransform",
    "SaturationTransform",
    "transforms",
]
