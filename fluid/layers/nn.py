"""Layers of networks: fully connected, dropout, functions, and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fluid.checks import FLOATS, check_dtype, check_type, check_variable, check_variable_and_dtype
from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper, append_simple_op

__all__ = [
    "autoincreased_step_counter",
    "clip",
    "clip_by_norm",
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
