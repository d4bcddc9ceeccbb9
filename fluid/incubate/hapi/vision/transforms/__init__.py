"""Random changes of the colours of images."""

from fluid.incubate.hapi.vision.transforms.transforms import (
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
]
