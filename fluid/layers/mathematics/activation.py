"""Activation functions that have attributes."""

from __future__ import annotations

from fluid.framework import Variable, convert_np_dtype_to_dtype_
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import Attributes, DTypeLike
from fluid.recording.checks import (
    FLOATS,
    check_dtype,
    check_type,
    check_variable,
    check_variable_and_dtype,
)

__all__ = [
    "brelu",
    "elu",
    "gelu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "log_softmax",
    "maxout",
    "mish",
    "prelu",
    "relu6",
    "selu",
    "soft_relu",
    "softmax",
    "softshrink",
    "stanh",
    "swish",
    "thresholded_relu",
]

_FULL_PRECISION = FLOATS[1:]


def _activation(
    op_type: str, x: Variable, attrs: Attributes, name: str | None = None, *, half: bool = True
) -> Variable:
    check_variable_and_dtype(x, "x", FLOATS if half else _FULL_PRECISION, op_type)
    return append_simple_op(op_type, {"X": x}, attrs, name=name)


def brelu(
    x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None
) -> Variable:
    """Clamp `x` to [`t_min`, `t_max`]."""
    return _activation("brelu", x, {"t_min": float(t_min), "t_max": float(t_max)}, name)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Exponential linear unit: `x` where x > 0, else `alpha * (exp(x) - 1)`."""
    return _activation("elu", x, {"alpha": float(alpha)}, name)


def gelu(x: Variable, approximate: bool = False) -> Variable:
    """Gaussian error linear unit: `x * Φ(x)`, or its tanh approximation if `approximate`."""
    return append_simple_op("gelu", {"X": x}, {"approximate": approximate})


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """Return `x` where `abs(x) > threshold` (default 0.5), else 0."""
    return _activation("hard_shrink", x, {"threshold": threshold})


def hard_sigmoid(
    x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None
) -> Variable:
    """Return `slope * x + offset`, clamped to [0, 1]."""
    return _activation("hard_sigmoid", x, {"slope": float(slope), "offset": float(offset)}, name)


def hard_swish(
    x: Variable,
    threshold: float = 6.0,
    scale: float = 6.0,
    offset: float = 3.0,
    name: str | None = None,
) -> Variable:
    """Return `x * clamp(x + offset, 0, threshold) / scale`."""
    attrs = {"threshold": float(threshold), "scale": float(scale), "offset": float(offset)}
    return _activation("hard_swish", x, attrs, name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Return `max(x, alpha * x)`."""
    return _activation("leaky_relu", x, {"alpha": float(alpha)}, name)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """Maximum over groups of `groups` channels: [N, C, H, W] to [N, C / groups, H, W].

    `axis` is the channel axis: 1, or 3 or -1 for channels-last input. Raises ValueError for any
    other `axis`.
    """
    if axis not in (1, 3, -1):
        raise ValueError(f"axis of maxout must be 1, or for channels last 3 or -1, not {axis}")
    attrs = {"groups": groups, "axis": 3 if axis == -1 else axis}
    return _activation("maxout", x, attrs, name, half=False)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """Return `x * tanh(softplus(x))`; above `threshold`, softplus(x) is approximated by x."""
    check_type(threshold, "threshold", (float, int), "mish")
    if threshold <= 0:
        raise ValueError(f"threshold of mish must be above 0, but received {threshold}")
    return _activation("mish", x, {"threshold": float(threshold)}, name, half=False)


def prelu(
    x: Variable, mode: str, param_attr: ParamAttrLike = None, name: str | None = None
) -> Variable:
    """Parametric ReLU: `x` where x > 0, else `slope * x` with a learned slope (initially 0.25).

    `mode` is "all" for one slope, "channel" for one slope per channel (axis 1), or "element" for
    one slope per element of a sample. Raises ValueError for another mode or if `x` has too few
    axes.
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "prelu")
    if mode not in ("all", "channel", "element"):
        raise ValueError(f"mode of prelu must be all, channel or element, not {mode!r}")
    if mode == "channel" and len(x.shape) < 2:
        raise ValueError(
            f"prelu with mode 'channel' takes two axes or more, but received {list(x.shape)}"
        )
    shapes = {"all": [1], "element": [1, *x.shape[1:]]}
    helper = LayerHelper("prelu", param_attr=param_attr, name=name)
    alpha = helper.create_parameter(
        helper.param_attr,
        shapes[mode] if mode in shapes else [1, x.shape[1], 1, 1],
        "float32",
        default_initializer=Constant(0.25),
    )
    return helper.append_result("prelu", {"X": x, "Alpha": alpha}, {"mode": mode})


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Clamp `x` to [0, `threshold`]."""
    return _activation("relu6", x, {"threshold": float(threshold)}, name)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Scaled ELU: `scale * x` where x > 0, else `scale * alpha * (exp(x) - 1)`.

    The default `scale` and `alpha` are those of self-normalizing networks.
    """
    return _activation("selu", x, {"scale": scale, "alpha": alpha}, name, half=False)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Return `log(1 + exp(x))` with x clamped to [-threshold, threshold]."""
    return _activation("soft_relu", x, {"threshold": float(threshold)}, name)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Soft shrinkage: `sign(x) * max(abs(x) - alpha, 0)`, `alpha` 0.5 by default."""
    return _activation("softshrink", x, {"lambda": alpha})


def stanh(
    x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """Return `scale_b * tanh(scale_a * x)`."""
    return _activation("stanh", x, {"scale_a": float(scale_a), "scale_b": float(scale_b)}, name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """Return `x * sigmoid(beta * x)`."""
    return _activation("swish", x, {"beta": float(beta)}, name)


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """Return `x` where `x > threshold` (default 1), else 0."""
    return _activation("thresholded_relu", x, {"threshold": threshold})


def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """Softmax along `axis`: `exp(input)` divided by its sum along `axis`."""
    check_variable_and_dtype(input, "input", FLOATS, "softmax")
    attrs = {"axis": axis, "use_cudnn": use_cudnn}
    return append_simple_op("softmax", {"X": input}, attrs, name=name)


def log_softmax(
    input: Variable,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Variable:
    """Logarithm of the softmax along `axis` (default: the last axis), cast to `dtype` if not
    None.
    """
    check_variable(input, "input", "log_softmax")
    helper = LayerHelper("log_softmax", name=name)
    if dtype is None:
        check_dtype(input.dtype, "input", FLOATS, "log_softmax")
    else:
        wanted = convert_np_dtype_to_dtype_(dtype)
        attrs = {"in_dtype": input.dtype, "out_dtype": wanted}
        input = helper.append_result("cast", {"X": input}, attrs, wanted)
    attrs = {"axis": -1 if axis is None else axis, "use_cudnn": False}
    return helper.append_result("log", {"X": helper.append_result("softmax", {"X": input}, attrs)})
