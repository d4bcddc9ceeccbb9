"""Normalization by parameters or accumulated statistics instead of those of the batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fluid.framework import Variable
from fluid.initializer import Constant, Normal
from fluid.layer_helper import LayerHelper
from fluid.layers.images.windows import check_layout, is_channels_last
from fluid.param_attr import ParamAttr
from fluid.recording.checks import FLOATS, check_type, check_variable, check_variable_and_dtype

__all__ = ["affine_channel", "data_norm", "spectral_norm"]

_FULL_PRECISION = FLOATS[1:]
"""Dtypes of layers without half precision support."""


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """Return `x * scale + bias` per channel; `scale` and `bias` are [C]."""
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "affine_channel")
    check_variable(scale, "scale", "affine_channel")
    check_variable(bias, "bias", "affine_channel")
    helper = LayerHelper("affine_channel", name=name, act=act)
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    out = helper.append_result("affine_channel", inputs, {"data_layout": data_layout})
    return helper.append_activation(out)


def spectral_norm(
    weight: Variable,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
    name: str | None = None,
) -> Variable:
    """Divide `weight` by its largest singular value, as a matrix whose rows are axis `dim`.

    It is estimated by `power_iters` power iterations, starting from vectors stored as parameters.
    """
    check_variable_and_dtype(weight, "weight", _FULL_PRECISION, "spectral_norm")
    check_type(dim, "dim", int, "spectral_norm")
    check_type(power_iters, "power_iters", int, "spectral_norm")
    check_type(eps, "eps", float, "spectral_norm")
    helper = LayerHelper("spectral_norm", name=name)
    rows = weight.shape[dim]
    u, v = (
        helper.create_parameter(
            ParamAttr(),
            [size],
            weight.dtype,
            default_initializer=Normal(0.0, 1.0),
            stop_gradient=True,
        )
        for size in (rows, math.prod(weight.shape) // rows)
    )
    out = helper.create_variable(dtype=weight.dtype)
    helper.append_op(
        "spectral_norm",
        inputs={"Weight": weight, "U": u, "V": v},
        outputs={"Out": out},
        attrs={"dim": dim, "power_iters": power_iters, "eps": eps},
    )
    return out


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Mapping[str, float] | None = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalize features [N, C] by accumulated sums of all data, which are parameters.

    `param_attr` may set their initial values: batch_size, batch_sum, batch_square, and scale_w and
    bias with `enable_scale_and_shift`. Slots of `slot_dim` features that start with 0 remain 0.
    """
    check_variable(input, "input", "data_norm")
    check_layout(data_layout, "data_norm")
    helper = LayerHelper("data_norm", act=act, name=name)
    shape = [input.shape[-1 if is_channels_last(data_layout) else 1]]
    start = dict(param_attr or {})
    inputs = {"X": input}
    if enable_scale_and_shift:
        inputs["scale_w"] = _sum_parameter(
            helper, name, "scale_w", start.get("scale_w", 1.0), shape, input
        )
        inputs["bias"] = _sum_parameter(helper, name, "bias", start.get("bias", 0.0), shape, input)
    for slot, (label, key, value) in _SUMS.items():
        inputs[slot] = _sum_parameter(helper, name, label, start.get(key, value), shape, input)
    means, scales = (
        helper.create_variable(dtype=input.dtype, stop_gradient=True) for _ in range(2)
    )
    out = input if in_place else helper.create_variable(dtype=input.dtype)
    attrs = {"epsilon": epsilon, "sync_stats": sync_stats, "summary_decay_rate": summary_decay_rate}
    attrs |= {"slot_dim": slot_dim} if slot_dim > 0 else {}
    attrs |= {"enable_scale_and_shift": True} if enable_scale_and_shift else {}
    outputs = {"Y": out, "Means": means, "Scales": scales}
    helper.append_op("data_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return helper.append_activation(out)


_SUMS = {
    "BatchSize": ("batch_size", "batch_size", 1e4),
    "BatchSum": ("batch_sum", "batch_sum", 0.0),
    "BatchSquareSum": ("batch_square_sum", "batch_square", 1e4),
}
"""For each slot: parameter name, key in `param_attr`, and initial value."""


def _sum_parameter(
    helper: LayerHelper,
    layer: str | None,
    label: str,
    start: float,
    shape: list[int],
    input: Variable,
) -> Variable:
    attr = ParamAttr(f"{layer or 'dn'}.{label}", Constant(float(start)), trainable=True)
    return helper.create_parameter(attr, shape, input.dtype)
