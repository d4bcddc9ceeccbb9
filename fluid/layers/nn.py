"""Layers of networks: fully connected, convolution, pooling, normalisation, and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluid.checks import FLOATS, check_dtype, check_type, check_variable, check_variable_and_dtype
from fluid.framework import Variable
from fluid.initializer import Constant, Normal
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.param_attr import ParamAttr

__all__ = [
    "autoincreased_step_counter",
    "batch_norm",
    "clip",
    "clip_by_norm",
    "conv2d",
    "dropout",
    "elementwise_add",
    "elementwise_div",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "fc",
    "matmul",
    "mean",
    "mul",
    "pool2d",
    "reduce_max",
    "reduce_mean",
    "reduce_sum",
    "relu",
    "reshape",
    "scale",
    "softmax",
    "sum",
    "topk",
]

Padding = int | str | Sequence[Any]


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """`act(sum of input @ weight + bias)`: the last axes of each input, flattened, become `size`.

    The first `num_flatten_dims` axes stay; -1 means all but the last.
    """
    helper = LayerHelper(
        "fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_dtype(helper.input_dtype(), "input", FLOATS, "fc")
    products = []
    for each, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(each.shape) - 1
        products.append(_product(helper, each, attr, size, num_flatten_dims))
    out = products[0] if len(products) == 1 else helper.append_result("sum", {"X": products})
    return helper.append_activation(helper.append_bias_op(out, dim_start=num_flatten_dims))


def _product(
    helper: LayerHelper, input: Variable, attr: Any, size: int, num_flatten_dims: int
) -> Variable:
    shape = [math.prod(input.shape[num_flatten_dims:]), size]
    weight = helper.create_parameter(attr, shape, input.dtype)
    attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
    return helper.append_result("mul", {"X": input, "Y": weight}, attrs)


# ---- convolution and pooling --------------------------------------------------------------------


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolve pictures [N, C, H, W] with `num_filters` filters of C / groups channels.

    Padding is a number, [height, width], [top, bottom, left, right], "SAME" or "VALID". Raises
    ValueError where the channels are unknown or not divisible by `groups`.
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    channels = _channels(input, data_format, "conv2d")
    if not isinstance(use_cudnn, bool):
        raise ValueError(f"use_cudnn of conv2d must be True or False, not {use_cudnn!r}")
    if channels % (groups or 1):
        raise ValueError(
            f"the channels of the input of conv2d must be divisible by groups, "
            f"but {input.name!r} has {channels} and groups is {groups}"
        )
    alone = channels == groups and num_filters % channels == 0 and not use_cudnn
    helper = LayerHelper(
        "depthwise_conv2d" if alone else "conv2d",
        param_attr=param_attr,
        bias_attr=bias_attr,
        act=act,
        name=name,
        use_cudnn=use_cudnn,
    )
    field = _pair(filter_size, "filter_size")
    deviation = math.sqrt(2.0 / (math.prod(field) * channels))
    filters = helper.create_parameter(
        helper.param_attr,
        [num_filters, channels // (groups or 1), *field],
        input.dtype,
        default_initializer=Normal(0.0, deviation),
    )
    paddings, algorithm = _paddings(padding, data_format)
    attrs = {
        "strides": _pair(stride, "stride"),
        "paddings": paddings,
        "dilations": _pair(dilation, "dilation"),
        "groups": groups,
        "use_cudnn": use_cudnn,
        "use_mkldnn": False,
        "fuse_relu_before_depthwise_conv": False,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    inputs = {"Input": input, "Filter": filters}
    out = helper.append_result(helper.layer_type, inputs, attrs, slot="Output")
    axis = 1 if data_format == "NCHW" else 3
    return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Padding = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """The largest entry or the average of each window of pictures [N, C, H, W].

    `global_pooling` takes the whole picture as window; `ceil_mode` keeps partial windows at the
    border; `exclusive` averages do not count padding. Raises ValueError for other arguments.
    """
    if pool_type not in ("max", "avg"):
        raise ValueError(f"pool_type of pool2d must be 'max' or 'avg', not {pool_type!r}")
    if not global_pooling and pool_size == -1:
        raise ValueError("pool2d needs a pool_size, or global_pooling")
    if not isinstance(use_cudnn, bool):
        raise TypeError(f"use_cudnn of pool2d must be True or False, not {use_cudnn!r}")
    _check_layout(data_format, "pool2d")
    paddings, algorithm = _paddings(pool_padding, data_format)
    if algorithm == "VALID" and ceil_mode:
        raise ValueError("pool2d with padding 'VALID' can not have ceil_mode")
    attrs = {
        "pooling_type": pool_type,
        "ksize": _pair(pool_size, "pool_size"),
        "global_pooling": global_pooling,
        "strides": _pair(pool_stride, "pool_stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "use_mkldnn": False,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    return append_simple_op("pool2d", {"X": input}, attrs, name=name)


def _channels(input: Variable, layout: str, op: str) -> int:
    """How many channels pictures have; ValueError where they are no pictures or it is unknown."""
    _check_layout(layout, op)
    if len(input.shape) != 4:
        raise ValueError(f"{op} takes pictures [N, C, H, W], but received {list(input.shape)}")
    channels = input.shape[1 if layout == "NCHW" else 3]
    if channels < 0:
        raise ValueError(f"the channels of {input.name!r} must be known for {op}")
    return channels


def _check_layout(layout: str, op: str) -> None:
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"the layout of {op} must be 'NCHW' or 'NHWC', not {layout!r}")


def _pair(value: int | Sequence[int], name: str) -> list[int]:
    """A number for height and width, or one for each; ValueError for anything else."""
    sizes = [value, value] if isinstance(value, int) else list(value)
    if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes):
        raise ValueError(f"{name} must be a number or two, but received {value!r}")
    return sizes


def _paddings(padding: Padding, layout: str) -> tuple[list[int], str]:
    """The attributes `paddings` and `padding_algorithm`; ValueError for what is no padding."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ValueError(f"padding must be numbers, 'SAME' or 'VALID', not {padding!r}")
        return [0, 0], padding.upper()
    sizes = list(padding) if isinstance(padding, list | tuple) else padding
    if not isinstance(sizes, list) or len(sizes) != 4:
        return _pair(sizes, "padding"), "EXPLICIT"
    if isinstance(sizes[0], list | tuple):
        sizes = _spatial(sizes, layout)
    top, bottom, left, right = sizes
    same = top == bottom and left == right
    return [top, left] if same else [top, bottom, left, right], "EXPLICIT"


def _spatial(pairs: Sequence[Sequence[int]], layout: str) -> list[int]:
    """The pairs of height and width; ValueError where batch or channels are padded."""
    first = 2 if layout == "NCHW" else 1
    others = [*pairs[:first], *pairs[first + 2 :]]
    if any(size for pair in others for size in pair):
        raise ValueError(f"batch and channels can not be padded, but received {pairs!r}")
    return [size for pair in pairs[first : first + 2] for size in pair]


# ---- normalisation ------------------------------------------------------------------------------


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """`(input - mean) / sqrt(variance + epsilon) * scale + bias`, a channel at a time.

    Training uses the batch's mean and variance and moves the running ones by 1 - `momentum`;
    testing, and `use_global_stats`, use those.
    """
    check_variable_and_dtype(input, "input", FLOATS, "batch_norm")
    _check_layout(data_layout, "batch_norm")
    helper = LayerHelper(
        "batch_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    if helper.param_attr is False or helper.bias_attr is False:
        raise ValueError("batch_norm has a scale and a bias: neither attribute can be False")
    shape = [input.shape[1 if data_layout == "NCHW" else -1]]
    scale = helper.create_parameter(
        helper.param_attr, shape, input.dtype, default_initializer=Constant(1.0)
    )
    bias = helper.create_parameter(helper.bias_attr, shape, input.dtype, is_bias=True)
    mean, variance = (
        _running(helper, each, start, shape, input.dtype, do_model_average_for_mean_and_var)
        for each, start in ((moving_mean_name, 0.0), (moving_variance_name, 1.0))
    )
    saved_mean, saved_variance = (
        helper.create_variable_for_type_inference(input.dtype, stop_gradient=True) for _ in range(2)
    )
    out = input if in_place else helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        "batch_norm",
        inputs={"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance},
        outputs={
            "Y": out,
            "MeanOut": mean,
            "VarianceOut": variance,
            "SavedMean": saved_mean,
            "SavedVariance": saved_variance,
        },
        attrs={
            "momentum": momentum,
            "epsilon": epsilon,
            "is_test": is_test,
            "data_layout": data_layout,
            "use_mkldnn": False,
            "fuse_with_relu": False,
            "use_global_stats": use_global_stats,
        },
    )
    return helper.append_activation(out)


def _running(
    helper: LayerHelper, name: str | None, start: float, shape: list[int], dtype: Any, average: bool
) -> Variable:
    """A running statistic: a parameter that no optimizer touches."""
    attr = ParamAttr(name, Constant(start), trainable=False, do_model_average=average)
    return helper.create_parameter(attr, shape, dtype, stop_gradient=True)


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Zero each element with probability `dropout_prob` while training.

    "downgrade_in_infer" scales by 1 - p when testing, "upscale_in_train" by 1 / (1 - p) when
    training. `seed` None draws other elements each time, unless the program has a seed.
    """
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    helper = LayerHelper("dropout", name=name)
    seed = seed or helper.main_program._fresh_seed() or seed
    out = helper.create_variable_for_type_inference(x.dtype)
    mask = helper.create_variable_for_type_inference("uint8", stop_gradient=True)
    helper.append_op(
        "dropout",
        inputs={"X": x},
        outputs={"Out": out, "Mask": mask},
        attrs={
            "dropout_prob": dropout_prob,
            "is_test": is_test,
            "fix_seed": seed is not None,
            "seed": seed or 0,
            "dropout_implementation": dropout_implementation,
        },
    )
    return out


# ---- functions ----------------------------------------------------------------------------------


def relu(x: Variable, name: str | None = None) -> Variable:
    """`max(x, 0)`."""
    return append_simple_op("relu", {"X": x}, name=name)


def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """`exp(input)` divided by its sum along `axis`."""
    attrs = {"axis": axis, "use_cudnn": use_cudnn}
    return append_simple_op("softmax", {"X": input}, attrs, name=name)


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """x, but nowhere below `min` or above `max`."""
    return append_simple_op("clip", {"X": x}, {"min": float(min), "max": float(max)}, name=name)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """x, scaled down to the norm `max_norm` where it is longer."""
    return append_simple_op("clip_by_norm", {"X": x}, {"max_norm": float(max_norm)}, name=name)


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """`scale * x + bias`, or `scale * (x + bias)`."""
    inputs, attrs = {"X": x}, {"bias": float(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = float(scale)
    return append_simple_op("scale", inputs, attrs, name=name, act=act)


def _elementwise(
    op_type: str, x: Variable, y: Variable, axis: int, act: str | None, name: str | None
) -> Variable:
    check_variable(x, "x", op_type)
    check_variable(y, "y", op_type)
    attrs = {"axis": axis, "use_mkldnn": False}
    return append_simple_op(op_type, {"X": x, "Y": y}, attrs, name=name, act=act)


def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x + y`; the axes of the smaller one are those of the other from `axis` on."""
    return _elementwise("elementwise_add", x, y, axis, act, name)


def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x - y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_sub", x, y, axis, act, name)


def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x * y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_mul", x, y, axis, act, name)


def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x / y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_div", x, y, axis, act, name)


def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """The larger of x and y, aligned like `elementwise_add`."""
    return _elementwise("elementwise_max", x, y, axis, act, name)


def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """The smaller of x and y, aligned like `elementwise_add`."""
    return _elementwise("elementwise_min", x, y, axis, act, name)


def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Variable:
    """`x ** y`, aligned like `elementwise_add`."""
    return _elementwise("elementwise_pow", x, y, axis, act, name)


def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """The product of x and y seen as matrices, whose rows are their first `…_num_col_dims` axes."""
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return append_simple_op("mul", {"X": x, "Y": y}, attrs, name=name)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """`alpha * x @ y` over the last two axes, each transposed first if asked."""
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return append_simple_op("matmul", {"X": x, "Y": y}, attrs, name=name)


def mean(x: Variable, name: str | None = None) -> Variable:
    """The average of all elements: [1]."""
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return append_simple_op("mean", {"X": x}, name=name)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """The sum of tensors of one shape."""
    terms = list(x) if isinstance(x, list | tuple) else [x]
    return append_simple_op("sum", {"X": terms}, {"use_mkldnn": False})


def _reduce(
    op_type: str,
    input: Variable,
    dim: int | Sequence[int] | None,
    keep_dim: bool,
    name: str | None,
) -> Variable:
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    attrs = {"dim": axes or [0], "keep_dim": keep_dim, "reduce_all": not axes}
    return append_simple_op(op_type, {"X": input}, attrs, name=name)


def reduce_sum(
    input: Variable,
    dim: int | Sequence[int] | None = None,
    keep_dim: bool = False,
    name: str | None = None,
) -> Variable:
    """The sum along the axes `dim`, or of all elements: [1]."""
    return _reduce("reduce_sum", input, dim, keep_dim, name)


def reduce_mean(
    input: Variable,
    dim: int | Sequence[int] | None = None,
    keep_dim: bool = False,
    name: str | None = None,
) -> Variable:
    """The average along the axes `dim`, or of all elements: [1]."""
    return _reduce("reduce_mean", input, dim, keep_dim, name)


def reduce_max(
    input: Variable,
    dim: int | Sequence[int] | None = None,
    keep_dim: bool = False,
    name: str | None = None,
) -> Variable:
    """The largest along the axes `dim`, or of all elements: [1]."""
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reshape(
    x: Variable,
    shape: Sequence[int],
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The same elements in another shape: 0 keeps a size, one -1 is worked out.

    `actual_shape`, int32 [rank], goes before `shape` when it runs. Raises ValueError for a shape
    with several -1, other negative sizes, or a 0 beyond the axes of `x`.
    """
    check_variable(x, "x", "reshape")
    check_type(shape, "shape", (list, tuple), "reshape")
    _check_shape(x, list(shape))
    helper = LayerHelper("reshape2", act=act, name=name)
    out = x if inplace else helper.create_variable_for_type_inference(x.dtype)
    old_shape = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        "reshape2",
        inputs={"X": x, "Shape": actual_shape},
        outputs={"Out": out, "XShape": old_shape},
        attrs={"shape": list(shape)},
    )
    return helper.append_activation(out)


def _check_shape(x: Variable, shape: list[int]) -> None:
    if not shape or shape.count(-1) > 1 or min(shape) < -1:
        raise ValueError(f"reshape takes sizes and at most one -1, but received {shape}")
    if 0 in shape[len(x.shape) :]:
        raise ValueError(f"reshape of {list(x.shape)}: no size to keep for a 0 in {shape}")


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The `k` largest entries of the last axis, the largest first, and where they are (int64)."""
    check_variable(input, "input", "topk")
    helper = LayerHelper("top_k", name=name)
    values = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    indices = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    tensor = isinstance(k, Variable)
    helper.append_op(
        "top_k",
        inputs={"X": input, "K": k if tensor else None},
        outputs={"Out": values, "Indices": indices},
        attrs={"k": None if tensor else k},
    )
    return values, indices


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """A counter that the first op of the program increments: `begin` in the first step; int64 [1].

    Asked for again, the same name gives the same counter.
    """
    helper = LayerHelper("global_step_counter")
    counter, is_new = helper.create_or_get_global_variable(
        name=counter_name or "@STEP_COUNTER@",
        dtype="int64",
        shape=[1],
        persistable=True,
        belong_to_optimizer=True,
    )
    if is_new:
        helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
        helper.main_program.global_block()._prepend_op(
            "increment",
            inputs={"X": counter},
            outputs={"Out": counter},
            attrs={"step": float(step)},
        )
        counter.stop_gradient = True
    return counter
