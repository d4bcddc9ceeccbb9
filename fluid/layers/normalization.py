"""Normalization over a batch, a row, an image or a group of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler.ir.types import HALVES
from compiler.support.user_warnings import warn_user
from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.layers.images.windows import check_layout, is_channels_last
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.annotations import Attributes, DTypeLike
from fluid.recording.checks import FLOATS, check_variable_and_dtype

__all__ = [
    "batch_norm",
    "group_norm",
    "inplace_abn",
    "instance_norm",
    "layer_norm",
    "lrn",
]

_FULL_PRECISION = FLOATS[1:]
"""The element types of layers that have no half precision."""


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Return `(input - mean) / sqrt(variance + epsilon) * scale + bias` per channel.

    Training uses the statistics of the batch and updates the running ones by 1 - `momentum`;
    inference and `use_global_stats` use the running ones.

    >>> import fluid
    >>> images = fluid.layers.data("batch_norm_doc", [3, 8, 8])
    >>> fluid.layers.batch_norm(images, act="relu").shape
    (-1, 3, 8, 8)
    """
    check_variable_and_dtype(input, "input", FLOATS, "batch_norm")
    _check_channels(input, "batch_norm")
    helper = LayerHelper(
        "batch_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    names = (moving_mean_name, moving_variance_name)
    slots = _batch_norm_variables(
        helper, input, data_layout, names, do_model_average_for_mean_and_var
    )
    out = input if in_place else helper.create_variable_for_type_inference(input.dtype)
    attrs = {"epsilon": epsilon, "is_test": is_test, "data_layout": data_layout}
    attrs["use_global_stats"] = use_global_stats
    _append_batch_norm(helper, input, out, momentum, slots, attrs)
    return helper.append_activation(out)


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float | Variable = 0.9,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """`batch_norm` with an invertible activation, computed in place of `input`.

    `act` is None, "identity", "leaky_relu" or "elu", with slope or scale `act_alpha`. Raises
    ValueError for another one.
    """
    if act not in (None, "identity", "leaky_relu", "elu"):
        raise ValueError(
            f"act of inplace_abn must be None, 'identity', 'leaky_relu' or 'elu', not {act!r}"
        )
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "inplace_abn")
    _check_channels(input, "inplace_abn")
    helper = LayerHelper("inplace_abn", param_attr=param_attr, bias_attr=bias_attr, name=name)
    names = (moving_mean_name, moving_variance_name)
    slots = _batch_norm_variables(
        helper, input, data_layout, names, do_model_average_for_mean_and_var
    )
    attrs = {"epsilon": epsilon, "is_test": is_test, "data_layout": data_layout}
    attrs |= {"use_global_stats": use_global_stats, "activation": act, "alpha": act_alpha}
    _append_batch_norm(helper, input, input, momentum, slots, attrs)
    return input


def _check_channels(input: Variable, op: str) -> None:
    """Raise ValueError for an input without an axis of channels."""
    if len(input.shape) < 2:
        raise ValueError(
            f"{op} takes [N, C] or images [N, C, H, W], but {input.name!r} is {list(input.shape)}"
        )


def _batch_norm_variables(
    helper: LayerHelper,
    input: Variable,
    layout: str,
    names: tuple[str | None, str | None],
    average: bool,
) -> dict[str, Variable | None]:
    """Create the parameters, running statistics and batch statistics of each channel, by slot."""
    op = helper.layer_type
    check_layout(layout, op)
    if helper.param_attr is False or helper.bias_attr is False:
        raise ValueError(f"{op} has a scale and a bias: neither attribute can be False")
    dtype = "float32" if input.element in HALVES else input.dtype
    shape = [input.shape[-1 if is_channels_last(layout) else 1]]
    variables = {"Scale": _scale(helper, shape, dtype), "Bias": _bias(helper, shape, dtype)}
    for slot, name, start in zip(("Mean", "Variance"), names, (0.0, 1.0), strict=True):
        variables[slot] = _running_statistic(helper, name, start, shape, dtype, average)
    for slot in ("SavedMean", "SavedVariance"):
        variables[slot] = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    return variables


def _append_batch_norm(
    helper: LayerHelper,
    input: Variable,
    out: Variable,
    momentum: float | Variable,
    slots: Mapping[str, Variable | None],
    attrs: Attributes,
) -> None:
    tensor = isinstance(momentum, Variable)
    saved = {slot: var for slot, var in slots.items() if slot.startswith("Saved")}
    unsaved = {slot: var for slot, var in slots.items() if slot not in saved}
    helper.append_op(
        helper.layer_type,
        inputs={"X": input, **unsaved, "MomentumTensor": momentum if tensor else None},
        outputs={"Y": out, "MeanOut": unsaved["Mean"], "VarianceOut": unsaved["Variance"], **saved},
        attrs={
            "momentum": None if tensor else momentum,
            "use_mkldnn": False,
            "fuse_with_relu": False,
            **attrs,
        },
    )


def _running_statistic(
    helper: LayerHelper,
    name: str | None,
    start: float,
    shape: list[int],
    dtype: DTypeLike,
    average: bool,
) -> Variable:
    """Create a running statistic: a parameter that is not trained."""
    attr = ParamAttr(name, Constant(start), trainable=False, do_model_average=average)
    return helper.create_parameter(attr, shape, dtype, stop_gradient=True)


def _scale(helper: LayerHelper, shape: list[int], dtype: DTypeLike) -> Variable | None:
    """Create a parameter initialized to 1."""
    start = Constant(1.0)
    return helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=start)


def _bias(helper: LayerHelper, shape: list[int], dtype: DTypeLike) -> Variable | None:
    """Create a parameter initialized to 0."""
    return helper.create_parameter(helper.bias_attr, shape, dtype, is_bias=True)


# ---- within a sample ----------------------------------------------------------------------------


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return `(input - mean) / sqrt(variance + epsilon) * scale + shift` over axes ≥
    `begin_norm_axis`.

    `scale` and `shift` select whether these parameters exist. Raises ValueError if one is selected
    and its attribute is False.

    >>> import fluid
    >>> rows = fluid.layers.data("layer_norm_doc", [4, 6])
    >>> fluid.layers.layer_norm(rows, begin_norm_axis=2).shape
    (-1, 4, 6)
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "layer_norm")
    helper = LayerHelper(
        "layer_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    _check_parameter_attr("scale", scale, "param_attr", param_attr)
    _check_parameter_attr("shift", shift, "bias_attr", bias_attr)
    shape, inputs = [math.prod(input.shape[begin_norm_axis:])], {"X": input}
    inputs |= {"Scale": _scale(helper, shape, input.dtype)} if scale else {}
    inputs |= {"Bias": _bias(helper, shape, input.dtype)} if shift else {}
    mean, variance = _create_temporaries(helper, input, 2)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        "layer_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "begin_norm_axis": begin_norm_axis},
    )
    return helper.append_activation(out)


def _check_parameter_attr(what: str, enabled: bool, name: str, attr: ParamAttrLike) -> None:
    if enabled and attr is False:
        raise ValueError(f"layer_norm with {what} has a parameter: {name} can not be False")
    if not enabled and attr:
        warn_user(f"layer_norm has no {what}, so {name} has no effect")


def _create_temporaries(helper: LayerHelper, input: Variable, count: int) -> list[Variable]:
    """Create temporaries without gradient that the backward pass reads."""
    return [
        helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
        for _ in range(count)
    ]


def instance_norm(
    input: Variable,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    name: str | None = None,
) -> Variable:
    """Return `(input - mean) / sqrt(variance + epsilon) * scale + bias` per channel and image.

    Raises ValueError if an attribute is False.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "instance_norm")
    helper = LayerHelper("instance_norm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    if helper.param_attr is False or helper.bias_attr is False:
        raise ValueError("instance_norm has a scale and a bias: neither attribute can be False")
    shape = [input.shape[1]]
    inputs = {"X": input, "Scale": _scale(helper, shape, input.dtype)}
    inputs["Bias"] = _bias(helper, shape, input.dtype)
    mean, variance = _create_temporaries(helper, input, 2)
    out = helper.create_variable_for_type_inference(input.dtype)
    outputs = {"Y": out, "SavedMean": mean, "SavedVariance": variance}
    helper.append_op("instance_norm", inputs=inputs, outputs=outputs, attrs={"epsilon": epsilon})
    return out


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Return `(input - mean) / sqrt(variance + epsilon)` per group of channels of an image.

    A scale exists only if `param_attr` is set, and a bias only if `bias_attr` is.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "group_norm")
    check_layout(data_layout, "group_norm")
    helper = LayerHelper(
        "group_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    shape, inputs = [input.shape[-1 if is_channels_last(data_layout) else 1]], {"X": input}
    inputs |= {"Scale": _scale(helper, shape, input.dtype)} if param_attr else {}
    inputs |= {"Bias": _bias(helper, shape, input.dtype)} if bias_attr else {}
    mean, variance = (
        helper.create_variable(dtype=input.dtype, stop_gradient=True) for _ in range(2)
    )
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(
        "group_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "groups": groups, "data_layout": data_layout},
    )
    return helper.append_activation(out)


def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 0.0001,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Return `input / (k + alpha * s) ** beta`, s the sum of squares over `n` adjacent channels.

    Raises ValueError unless the input is [N, C, H, W].
    """
    check_variable_and_dtype(input, "input", ["float32"], "lrn")
    if len(input.shape) != 4:
        raise ValueError(
            f"lrn takes images [N, C, H, W], but {input.name!r} is {list(input.shape)}"
        )
    check_layout(data_format, "lrn")
    helper = LayerHelper("lrn", name=name)
    (middle,) = _create_temporaries(helper, input, 1)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        "lrn",
        inputs={"X": input},
        outputs={"Out": out, "MidOut": middle},
        attrs={"n": n, "k": k, "alpha": alpha, "beta": beta, "data_format": data_format},
    )
    return out
