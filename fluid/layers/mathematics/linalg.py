"""Products of vectors and matrices, norms, distances and traces."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.mathematics.arithmetic import append_named
from fluid.param_attr import ParamAttrLike
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

_FULL_PRECISION = FLOATS[1:]
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
    """Matrix product of x and y, each flattened to 2-D at axis `…_num_col_dims`."""
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
    """Return `alpha * x @ y` over the last two axes, with optional transposition of each operand.

    Raises AssertedShapeError for incompatible shapes.
    """
    _check_both("matmul", x, y)
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    with asserting_shapes():
        return append_simple_op("matmul", {"X": x, "Y": y}, attrs, name=name)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Batched matrix product: [N, I, J] and [N, J, K] to [N, I, K]."""
    return append_simple_op("bmm", {"X": x, "Y": y}, name=name)


def addmm(
    input: Variable,
    x: Variable,
    y: Variable,
    alpha: float = 1.0,
    beta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Return `beta * input + alpha * x @ y` for matrices; `input` is broadcast to the product."""
    check_variable(input, "input", "addmm")
    _check_both("addmm", x, y, _FULL_PRECISION)
    inputs, attrs = {"X": x, "Y": y, "Input": input}, {"Alpha": float(alpha), "Beta": float(beta)}
    return append_simple_op("addmm", inputs, attrs, name=name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Dot product along the last axis, which is kept with size 1; x and y are 1-D or 2-D.

    The result is named `name` if it is not None.
    """
    _check_both("dot", x, y, _NUMBERS[1:])
    return append_named(name, "dot", {"X": x, "Y": y}, {})


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """Cross product along axis `dim` of size 3 (default: the first axis of size 3)."""
    attrs = {"dim": dim} if dim is not None else {}
    return append_simple_op("cross", {"X": input, "Y": other}, attrs)


def kron(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return the Kronecker product of x and y, written to `out` if it is not None."""
    _check_both("kron", x, y, _NUMBERS)
    helper = LayerHelper("kron", name=name)
    return _append_to(helper, "kron", {"X": x, "Y": y}, {}, out)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Sum the diagonal of axes `dim1`, `dim2` shifted right by `offset`; write to `out` if not
    None.

    Both axes are removed; a full reduction has shape [1].
    """
    check_variable_and_dtype(input, "input", _NUMBERS, "trace")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return _append_to(LayerHelper("trace", name=name), "trace", {"Input": input}, attrs, out)


def _append_to(
    helper: LayerHelper,
    op_type: str,
    inputs: dict[str, Variable],
    attrs: dict[str, int],
    out: Variable | None,
) -> Variable:
    """Append an op that writes to `out`, or to a new variable if None, and return its result."""
    if out is None:
        return helper.append_result(op_type, inputs, attrs)
    check_variable_and_dtype(out, "out", _NUMBERS, op_type)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def t(input: Variable, name: str | None = None) -> Variable:
    """Transpose a matrix; a 1-D tensor is returned unchanged. Raises ValueError for rank above
    2.
    """
    check_variable_and_dtype(input, "input", _NUMBERS, "t")
    if len(input.shape) > 2:
        raise ValueError(
            f"t takes a rank of 1 or 2, but received {list(input.shape)}: use layers.transpose"
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
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
) -> Variable:
    """Return `act(x @ weight[k] @ y + bias[k])` for k < `size`: [N, I] and [N, J] to [N, size]."""
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


# ---- norms and distances ------------------------------------------------------------------------


def l2_normalize(
    x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """Return `x / sqrt(sum(x ** 2) + epsilon)` along `axis` (None: axis 1, or axis 0 for 1-D x)."""
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "l2_normalize")
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
    """Cosine similarity of the rows of X and Y, [N, 1]; Y may have a single row, broadcast to
    all.
    """
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
    """Return the p-norm of `x - y` (broadcast), [1]. `p` may be 0 or infinite."""
    _check_both("dist", x, y, _FULL_PRECISION)
    check_type(p, "p", (float, int), "dist")
    return append_simple_op("dist", {"X": x, "Y": y}, {"p": float(p)})
