"""Products of vectors and matrices, norms, distances and traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.mathematics.arithmetic import result_called
from fluid.recording.checks import (
    FLOATS,
    asserting_shapes,
    check_type,
    check_variable,
    check_variable_and_dtype,
)

__all__ = [
    "addmm",
    "bilinear_tensor_product",
    "bmm",
    "cos_sim",
    "cross",
    "dist",
    "dot",
    "kron",
    "l2_normalize",
    "matmul",
    "mul",
    "t",
    "trace",
]

_WIDE = FLOATS[1:]
_NUMBERS = (*FLOATS, "int32", "int64")


def _check_both(op: str, x: Variable, y: Variable, allowed: Sequence[str] = FLOATS) -> None:
    check_variable_and_dtype(x, "x", allowed, op)
    check_variable_and_dtype(y, "y", allowed, op)


def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """The product of x and y seen as matrices, whose rows are their first `…_num_col_dims` axes."""
    _check_both("mul", x, y)
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
    """`alpha * x @ y` over the last two axes, each transposed first if asked.

    Raises AssertedShapeError for shapes that do not fit.
    """
    _check_both("matmul", x, y)
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    with asserting_shapes():
        return append_simple_op("matmul", {"X": x, "Y": y}, attrs, name=name)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The products of two stacks of matrices: [N, I, J] and [N, J, K] to [N, I, K]."""
    return append_simple_op("bmm", {"X": x, "Y": y}, name=name)


def addmm(
    input: Variable,
    x: Variable,
    y: Variable,
    alpha: float = 1.0,
    beta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """`beta * input + alpha * x @ y` for matrices; the input broadcasts to the product."""
    check_variable(input, "input", "addmm")
    _check_both("addmm", x, y, _WIDE)
    inputs, attrs = {"X": x, "Y": y, "Input": input}, {"Alpha": float(alpha), "Beta": float(beta)}
    return append_simple_op("addmm", inputs, attrs, name=name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The sum of `x * y` along the last axis, which stays with size 1; for one axis or two.

    The result is called `name` if that is given.
    """
    _check_both("dot", x, y, _NUMBERS[1:])
    return result_called(name, "dot", {"X": x, "Y": y}, {})


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """Cross products along the axis `dim` of size 3, by default the first of that size."""
    attrs = {"dim": dim} if dim is not None else {}
    return append_simple_op("cross", {"X": input, "Y": other}, attrs)


def kron(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """The Kronecker product: x with each element replaced by itself times y; to `out` if given."""
    _check_both("kron", x, y, _NUMBERS)
    helper = LayerHelper("kron", name=name)
    return _written(helper, "kron", {"X": x, "Y": y}, {}, out)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The sum along the diagonal of two axes, `offset` columns to the right; to `out` if given.

    Both axes go; at least [1] stays.
    """
    check_variable_and_dtype(input, "input", _NUMBERS, "trace")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return _written(LayerHelper("trace", name=name), "trace", {"Input": input}, attrs, out)


def _written(
    helper: LayerHelper,
    op_type: str,
    inputs: dict[str, Variable],
    attrs: dict[str, int],
    out: Variable | None,
) -> Variable:
    """The result of an op, which is `out` where that is given."""
    if out is None:
        return helper.append_result(op_type, inputs, attrs)
    check_variable_and_dtype(out, "out", _NUMBERS, op_type)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def t(input: Variable, name: str | None = None) -> Variable:
    """A matrix transposed; a tensor of one axis as it is. Raises ValueError for more than two."""
    check_variable_and_dtype(input, "input", _NUMBERS, "t")
    if len(input.shape) > 2:
        raise ValueError(
            f"t takes one axis or two, but received {list(input.shape)}: use layers.transpose"
        )
    if len(input.shape) == 1:
        return input
    helper = LayerHelper("t", name=name)
    out, shape = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    helper.append_op(
        "transpose2",
        inputs={"X": input},
        outputs={"Out": out, "XShape": shape},
        attrs={"axis": [1, 0]},
    )
    return out


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """`act(x @ weight[k] @ y + bias[k])` for k below `size`: [N, I] and [N, J] to [N, size]."""
    helper = LayerHelper(
        "bilinear_tensor_product",
        x=x,
        act=act,
        name=name,
        param_attr=param_attr,
        bias_attr=bias_attr,
    )
    dtype = helper.input_dtype("x")
    shape = [size, x.shape[1], y.shape[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    bias = helper.create_parameter(helper.bias_attr, [1, size], dtype, is_bias=True)
    inputs = {"X": x, "Y": y, "Weight": weight, **({} if bias is None else {"Bias": bias})}
    out = helper.append_result("bilinear_tensor_product", inputs)
    return helper.append_activation(out)


# ---- norms and distances -------------------------------------------------------------------------


def l2_normalize(
    x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """`x / sqrt(sum(x ** 2) + epsilon)` along `axis`; None is 1, and of one axis it is that."""
    check_variable_and_dtype(x, "x", _WIDE, "l2_normalize")
    along = 0 if len(x.shape) == 1 else 1 if axis is None else axis
    helper = LayerHelper("l2_normalize", name=name)
    out, norm = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    helper.append_op(
        "norm",
        inputs={"X": x},
        outputs={"Out": out, "Norm": norm},
        attrs={"axis": along, "epsilon": epsilon},
    )
    return out


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine of the angle between rows of X and of Y, which may be one for all: [N, 1]."""
    check_variable_and_dtype(X, "X", ("float32",), "cos_sim")
    check_variable_and_dtype(Y, "Y", ("float32",), "cos_sim")
    helper = LayerHelper("cos_sim")
    out, x_norm, y_norm = (helper.create_variable_for_type_inference(X.dtype) for _ in range(3))
    helper.append_op(
        "cos_sim",
        inputs={"X": X, "Y": Y},
        outputs={"Out": out, "XNorm": x_norm, "YNorm": y_norm},
    )
    return out


def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """The p-norm of `x - y`, which broadcast: [1]. `p` may be 0 and infinite."""
    _check_both("dist", x, y, _WIDE)
    check_type(p, "p", (float, int), "dist")
    return append_simple_op("dist", {"X": x, "Y": y}, {"p": float(p)})
