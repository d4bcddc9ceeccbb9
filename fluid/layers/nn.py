"""Common layers: fully connected, dropout, reshape, step counter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.layers.size_arguments import Sizes, size_operands
from fluid.param_attr import ParamAttrLike
from fluid.recording.checks import (
    FLOATS,
    SizesError,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)

__all__ = [
    "autoincreased_step_counter",
    "dropout",
    "fc",
    "reshape",
]


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return `act(sum of input @ weight + bias)`; trailing axes are flattened and become `size`.

    The first `num_flatten_dims` axes are kept; -1 means all but the last.
    """
    helper = LayerHelper(
        "fc", input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_dtype(helper.input_dtype(), "input", FLOATS, "fc")
    products: list[Variable] = []
    for variable, attr in helper.iter_inputs_and_params():
        if num_flatten_dims == -1:
            num_flatten_dims = len(variable.shape) - 1
        products.append(_product(helper, variable, attr, size, num_flatten_dims))
    out = products[0] if len(products) == 1 else helper.append_result("sum", {"X": products})
    return helper.append_activation(helper.append_bias_op(out, dim_start=num_flatten_dims))


def _product(
    helper: LayerHelper, input: Variable, attr: ParamAttrLike, size: int, num_flatten_dims: int
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
    """Zero each element with probability `dropout_prob` in training.

    "downgrade_in_infer" scales by 1 - p in inference, "upscale_in_train" by 1 / (1 - p) in
    training. `seed` None draws a new mask in each step, unless the program has a seed.
    """
    check_variable_and_dtype(x, "x", FLOATS, "dropout")
    helper = LayerHelper("dropout", name=name)
    seed = seed or helper.main_program.fresh_seed() or seed
    out = helper.create_variable_for_type_inference(x.dtype)
    mask = helper.create_variable_for_type_inference("uint8", stop_gradient=True)
    helper.append_op(
        "dropout",
        inputs={"X": x},
        outputs={"Out": out, "Mask": mask},
        attrs={
            "dropout_prob": dropout_prob,
            "is_test": is_test or not helper.main_program.trains,
            "fix_seed": seed is not None,
            "seed": seed or 0,
            "dropout_implementation": dropout_implementation,
        },
    )
    return out


RESHAPED = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
"""Dtypes that `reshape` accepts."""


def reshape(
    x: Variable,
    shape: Sizes,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Reshape: size 0 copies the size of the input axis, one -1 is inferred.

    Sizes are integers and int32 variables of one element, or one variable with all of them.
    `actual_shape`, int32 [rank], overrides `shape` at run time. Raises SizesError for a shape with
    several -1, other negative sizes, or a 0 beyond the rank of `x`.
    """
    check_variable_and_dtype(x, "x", RESHAPED, "reshape")
    check_type(shape, "shape", (list, tuple, Variable), "reshape")
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    helper = LayerHelper("reshape2", act=act, name=name)
    if not isinstance(shape, Variable):
        _check_shape(x, [size for size in shape if not isinstance(size, Variable)], len(shape))
    inputs, numbers = size_operands(helper, shape, "shape", ("Shape", "ShapeTensor"))
    if actual_shape is not None and not inputs:
        actual_shape.stop_gradient = True
        inputs = {"Shape": actual_shape}
    is_new = not inplace or helper.main_program.is_eager
    out = helper.create_variable_for_type_inference(x.dtype) if is_new else x
    old_shape = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        "reshape2",
        inputs={"X": x, **inputs},
        outputs={"Out": out, "XShape": old_shape},
        attrs={"shape": numbers},
    )
    return helper.append_activation(out)


def _check_shape(x: Variable, sizes: list[int], count: int) -> None:
    """Raise SizesError if the integers among `count` sizes are not a valid shape."""
    if not count or sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise SizesError(f"reshape takes sizes and at most one -1, but received {sizes}")
    if count == len(sizes) and 0 in sizes[len(x.shape) :]:
        raise SizesError(f"reshape of {list(x.shape)}: a 0 in {sizes} is beyond its axes")


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """Return a counter that the first op of the program increments: `begin` in step 1; int64 [1].

    The same name returns the same counter.
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
        helper.main_program.global_block().prepend_op(
            "increment",
            inputs={"X": counter},
            outputs={"Out": counter},
            attrs={"step": float(step)},
        )
        counter.stop_gradient = True
    return counter
