"""Layers of two-stage detectors: anchors, proposals, their targets, pyramids of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.checks import check_variable
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.detection import append_outputs

__all__ = ["anchor_generator"]

_VARIANCE = [0.1, 0.1, 0.2, 0.2]
"""A default, as the signature has it."""


def anchor_generator(
    input: Variable,
    anchor_sizes: float | Sequence[float] | None = None,
    aspect_ratios: float | Sequence[float] | None = None,
    variance: Sequence[float] = _VARIANCE,
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Boxes of every ratio and size around each place: [H, W, anchors, 4], and variances.

    `stride` is the step between places to the right and down; ValueError where it is not two.

    >>> import fluid
    >>> features = fluid.layers.data("anchors_doc", [8, 4, 5])
    >>> boxes, _ = fluid.layers.anchor_generator(features, [32.0, 64.0], [1.0], stride=[16.0, 16.0])
    >>> boxes.shape
    (4, 5, 2, 4)
    """
    check_variable(input, "input", "anchor_generator")
    if not isinstance(stride, list | tuple) or len(stride) != 2:
        raise ValueError(f"stride must be a width and a height, but received {stride!r}")
    attrs = {
        "anchor_sizes": _floats(anchor_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": list(variance),
        "stride": _floats(stride),
        "offset": offset,
    }
    outputs = {"Anchors": input.dtype, "Variances": input.dtype}
    helper = LayerHelper("anchor_generator", name=name)
    anchors, variances = append_outputs(helper, {"Input": input}, outputs, attrs)
    return anchors, variances


def _floats(values: Any) -> list[float]:
    return [float(each) for each in (values if isinstance(values, list | tuple) else [values])]
