"""Shape changes: transpose, reshape, concat, split, padding and diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid import unique_name
from fluid.framework import Variable, in_dygraph_mode
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.mathematics.arithmetic import append_named
from fluid.layers.size_arguments import Sizes, size_operands
from fluid.layers.tensor import NUMBERS, assign
from fluid.recording.annotations import Array, Attributes, Slots, SlotValue
from fluid.recording.arguments import ArgumentError
from fluid.recording.checks import (
    AxisError,
    SizesError,
    asserting_shapes,
    check_dtype,
    check_type,
    check_variable,
    check_variable_and_dtype,
    convert_dtype,
)
from fluid.recording.narrowing import is_sequence
from fluid.recording.var_types import VarDesc

__all__ = [
    "concat",
    "diag",
    "diag_embed",
    "expand",
    "expand_as",
    "flatten",
    "meshgrid",
    "pad",
    "pad2d",
    "pad_constant_like",
    "rank",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "transpose",
    "tril",
    "triu",
    "unsqueeze",
    "unstack",
]

SHAPE_OP_DTYPES = ("float16", *NUMBERS, "bfloat16")
NO_PADDING = [0, 0, 0, 0]


# ---- axes ---------------------------------------------------------------------------------------


def append_xshape(
    helper: LayerHelper,
    op_type: str,
    x: Variable,
    attrs: Attributes,
    inputs: Slots | None = None,
    out: Variable | None = None,
) -> Variable:
    """Append an op that stores its input's shape in XShape for the gradient; return Out."""
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    old_shape = helper.create_variable_for_type_inference(x.dtype)
    outputs = {"Out": out, "XShape": old_shape}
    helper.append_op(op_type, inputs={"X": x, **(inputs or {})}, outputs=outputs, attrs=attrs)
    return out


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Transpose `x`: axis i of the result is axis `perm[i]` of `x`.

    >>> import fluid
    >>> image = fluid.data("image", [None, 2, 3])
    >>> transpose(image, [0, 2, 1]).shape
    (-1, 3, 2)
    """
    check_variable_and_dtype(x, "x", SHAPE_OP_DTYPES, "transpose")
    check_type(perm, "perm", (list, tuple), "transpose")
    if sorted(perm) != list(range(len(x.shape))):
        raise ValueError(
            f"perm of transpose must have each axis of {x.name!r} {list(x.shape)} once, "
            f"but received {list(perm)}"
        )
    return append_xshape(LayerHelper("transpose", name=name), "transpose2", x, {"axis": list(perm)})


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Flatten to a matrix: axes before `axis` become the rows, the others the columns."""
    check_variable_and_dtype(x, "x", ("int8", *NUMBERS), "flatten")
    is_number = isinstance(axis, int)  # pyright: ignore[reportUnnecessaryIsInstance] - 2.0
    if not is_number or not 0 <= axis <= len(x.shape):
        raise ValueError(f"axis of flatten must be from 0 to {len(x.shape)}, not {axis!r}")
    return append_xshape(LayerHelper("flatten", name=name), "flatten2", x, {"axis": axis})


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Remove the `axes` of size 1, or all axes of size 1 if the list is empty."""
    check_variable_and_dtype(input, "input", ("int8", *SHAPE_OP_DTYPES), "squeeze")
    check_type(axes, "axes", (list, tuple), "squeeze")
    return append_xshape(LayerHelper("squeeze", name=name), "squeeze2", input, {"axes": list(axes)})


def unsqueeze(input: Variable, axes: int | Sizes, name: str | None = None) -> Variable:
    """Insert an axis of size 1 at each of `axes`, in order.

    >>> import fluid
    >>> column = fluid.data("column", [None, 3])
    >>> unsqueeze(column, [0, 2]).shape
    (1, -1, 1, 3)
    """
    check_variable(input, "input", "unsqueeze")
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    helper = LayerHelper("unsqueeze2", name=name)
    listed = [axes] if isinstance(axes, int) else axes
    inputs, numbers = size_operands(helper, listed, "axes", ("AxesTensor", "AxesTensorList"))
    return append_xshape(helper, "unsqueeze2", input, {"axes": [] if inputs else numbers}, inputs)


def shape(input: Variable) -> Variable:
    """Return the run-time shape of a tensor, int32 [rank]."""
    check_variable_and_dtype(input, "input", NUMBERS, "shape")
    return append_simple_op("shape", {"Input": input}, dtype="int32")


def rank(input: Variable) -> Variable:
    """Return the rank (number of axes) of a tensor, int32."""
    check_variable(input, "input", "rank")
    return assign(np.array(len(input.shape), "int32"))


def size(input: Variable) -> Variable:
    """Return the number of elements of a tensor, int64 [1]."""
    check_variable(input, "input", "size")
    return append_simple_op("size", {"Input": input}, dtype="int64")


# ---- concat, split, stack -----------------------------------------------------------------------


def _is_array(var: Variable) -> bool:
    return var.type == VarDesc.VarType.LOD_TENSOR_ARRAY


def _concat_array(
    helper: LayerHelper, x: list[Variable], axis: int | Variable, use_stack: bool
) -> Variable:
    """Concatenate or stack the tensors of one tensor array; ValueError for more than one array."""
    if len(x) != 1:
        raise ValueError(f"{helper.layer_type} takes one array, but received {len(x)} variables")
    out = helper.create_variable_for_type_inference(x[0].dtype)
    index = helper.create_variable_for_type_inference("int32")
    attrs = {"axis": axis, "use_stack": use_stack}
    outputs = {"Out": out, "OutIndex": index}
    helper.append_op("tensor_array_to_tensor", inputs={"X": x}, outputs=outputs, attrs=attrs)
    return out


def _listed(input: object, name: str, op: str) -> list[Variable]:
    listed = input if is_sequence(input) else [input]
    return [check_variable(item, f"{name}[{index}]", op) for index, item in enumerate(listed)]


def concat(
    input: Sequence[Variable] | Variable, axis: int | Variable = 0, name: str | None = None
) -> Variable:
    """Concatenate tensors, or those of a tensor array, along `axis`, which may be a variable.

    >>> import fluid
    >>> left, right = fluid.data("left", [None, 2]), fluid.data("right", [None, 3])
    >>> concat([left, right], axis=1).shape
    (-1, 5)
    """
    listed = _listed(input, "input", "concat")
    for index, variable in enumerate(listed):
        check_dtype(variable.dtype, f"input[{index}]", SHAPE_OP_DTYPES, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    helper = LayerHelper("concat", input=listed, name=name)
    if _is_array(listed[0]):
        return _concat_array(helper, listed, axis, use_stack=False)
    helper.input_dtype()
    if isinstance(axis, Variable):
        axis.stop_gradient = True
        return helper.append_result("concat", {"X": listed, "AxisTensor": axis})
    return helper.append_result("concat", {"X": listed}, {"axis": axis})


def split(
    input: Variable,
    num_or_sections: int | Sequence[int | Variable],
    dim: int | Variable = -1,
    name: str | None = None,
) -> list[Variable]:
    """Split a tensor along `dim` into equal parts, or into one part per size of a list.

    One size may be -1 and is inferred. Only eager mode makes a single part. Raises AxisError (an
    IndexError) if there is no axis `dim`; SizesError or AssertedShapeError (both ValueErrors) if
    the axis cannot be divided this way.

    >>> import fluid
    >>> halves = fluid.data("halves", [None, 6])
    >>> [part.shape for part in split(halves, [1, -1, 2], dim=1)]
    [(-1, 1), (-1, 3), (-1, 2)]
    """
    check_variable(input, "input", "split")
    check_type(num_or_sections, "num_or_sections", (int, list, tuple), "split")
    check_type(dim, "dim", (int, Variable), "split")
    helper = LayerHelper("split", name=name)
    inputs: dict[str, SlotValue] = {"X": input}
    attrs: dict[str, object] = {"num": 0}
    size = -1
    if isinstance(dim, Variable):
        dim.stop_gradient = True
        inputs["AxisTensor"] = dim
    else:
        if not -len(input.shape) <= dim < len(input.shape):
            raise AxisError(f"split: dim is {dim}, expected an axis of {list(input.shape)}")
        attrs["axis"] = dim + len(input.shape) if dim < 0 else dim
        size = input.shape[dim]
    if isinstance(num_or_sections, int):
        if num_or_sections < (1 if in_dygraph_mode() else 2):
            raise SizesError(f"split makes two parts or more, but received {num_or_sections}")
        if size > 0 and size % num_or_sections:
            raise SizesError(
                f"split: an axis of size {size} cannot be split into {num_or_sections} equal parts"
            )
        attrs["num"] = count = num_or_sections
    else:
        count = len(num_or_sections)
        slots = ("", "SectionsTensorList")
        tensors, attrs["sections"] = size_operands(
            helper, num_or_sections, "num_or_sections", slots
        )
        inputs |= tensors
    parts = [helper.create_variable_for_type_inference(input.dtype) for _ in range(count)]
    with asserting_shapes():
        helper.append_op("split", inputs=inputs, outputs={"Out": parts}, attrs=attrs)
    return parts


def stack(x: Variable | Sequence[Variable], axis: int | None = 0) -> Variable:
    """Stack tensors of the same shape, or those of a tensor array, along a new axis."""
    listed = _listed(x, "x", "stack")
    helper = LayerHelper("stack")
    axis = 0 if axis is None else axis
    if _is_array(listed[0]):
        return _concat_array(helper, listed, axis, use_stack=True)
    return helper.append_result("stack", {"X": listed}, {"axis": axis}, slot="Y")


def unstack(x: Variable, axis: int | None = 0, num: int | None = None) -> list[Variable]:
    """Split along `axis` and remove it; `num` is required if its size is dynamic."""
    check_variable(x, "x", "unstack")
    size = -1 if axis is None else x.shape[axis]
    if num is None and size <= 0:
        raise ValueError(f"unstack of {x.name!r} {list(x.shape)} needs num: axis {axis} is dynamic")
    num = size if num is None else num
    helper = LayerHelper("unstack")
    parts = [helper.create_variable_for_type_inference(x.dtype) for _ in range(num)]
    attrs = {"axis": axis, "num": num}
    helper.append_op("unstack", inputs={"X": x}, outputs={"Y": parts}, attrs=attrs)
    return parts


def meshgrid(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Broadcast N vectors to N-D grids, vector i along axis i; all results have the same shape."""
    check_type(input, "input", (list, tuple), "meshgrid")
    listed = _listed(input, "input", "meshgrid")
    helper = LayerHelper("meshgrid", name=name)
    outs = [helper.create_variable_for_type_inference(variable.dtype) for variable in listed]
    helper.append_op("meshgrid", inputs={"X": listed}, outputs={"Out": outs})
    return outs


# ---- repetition, padding ------------------------------------------------------------------------


def expand(x: Variable, expand_times: Sizes, name: str | None = None) -> Variable:
    """Repeat the tensor `expand_times[i]` times along axis i.

    >>> import fluid
    >>> tile_of = fluid.data("tile_of", [2, 3])
    >>> expand(tile_of, [2, 1]).shape
    (4, 3)
    """
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS), "expand")
    check_type(expand_times, "expand_times", (list, tuple, Variable), "expand")
    if convert_dtype(x.dtype) == "bool" and x.stop_gradient:
        raise ValueError(f"expand takes a bool x only if its stop_gradient is False: {x.name!r}")
    helper = LayerHelper("expand", name=name)
    slots = ("ExpandTimes", "expand_times_tensor")
    inputs, numbers = size_operands(helper, expand_times, "expand_times", slots)
    if any(number < 1 for number in numbers) and not inputs:
        raise SizesError(f"expand_times of expand must be at least 1, but received {numbers}")
    return helper.append_result("expand", {"X": x, **inputs}, {"expand_times": numbers})


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Repeat the tensor along each axis to the shape of `target_tensor`."""
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS), "expand_as")
    check_variable_and_dtype(target_tensor, "target_tensor", ("bool", *NUMBERS), "expand_as")
    inputs = {"X": x, "target_tensor": target_tensor}
    return append_simple_op("expand_as", inputs, name=name)


def pad(
    x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """Pad a tensor with `pad_value`: `paddings` has two sizes per axis, before and after."""
    check_variable_and_dtype(x, "x", SHAPE_OP_DTYPES, "pad")
    attrs = {"paddings": list(paddings), "pad_value": float(pad_value)}
    return append_simple_op("pad", {"X": x}, attrs, name=name)


def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = NO_PADDING,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pad the height and width of images: `paddings` is [top, bottom, left, right].

    `mode` is "constant" (`pad_value`), "edge" (nearest element) or "reflect" (mirrored without the
    edge element). The paddings may be an int32 variable.
    """
    check_variable_and_dtype(input, "input", SHAPE_OP_DTYPES, "pad2d")
    if mode not in ("reflect", "edge", "constant"):
        raise ArgumentError(f"mode of pad2d must be constant, reflect or edge, not {mode!r}")
    attrs: dict[str, object] = {"mode": mode, "data_format": data_format}
    attrs["pad_value"] = float(pad_value)
    inputs: dict[str, SlotValue] = {"X": input}
    if isinstance(paddings, Variable):
        inputs["Paddings"], attrs["paddings"] = paddings, []
    else:
        attrs["paddings"] = list(paddings)
    return append_simple_op("pad2d", inputs, attrs, name=name)


def pad_constant_like(
    x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """Pad `y` at the end of each axis with `pad_value` to the shape of `x`."""
    check_variable(x, "x", "pad_constant_like")
    check_variable_and_dtype(y, "y", NUMBERS, "pad_constant_like")
    attrs = {"pad_value": float(pad_value)}
    return append_simple_op("pad_constant_like", {"X": x, "Y": y}, attrs, name=name)


# ---- matrices -----------------------------------------------------------------------------------


def diag(diagonal: Variable | Array) -> Variable:
    """Return a square matrix with the vector on its diagonal."""
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    check_dtype(diagonal.dtype, "diagonal", NUMBERS, "diag")
    vector = diagonal if isinstance(diagonal, Variable) else assign(diagonal)
    out = append_simple_op("diag", {"Diagonal": vector})
    out.stop_gradient = True
    return out


def diag_embed(
    input: Variable | Array, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Variable:
    """Return matrices with the last axis of `input` on diagonal `offset` (positive: above the main
    one).

    `dim1` and `dim2` are the row and column axes of the result.
    """
    vectors = input if isinstance(input, Variable) else assign(input)
    check_dtype(vectors.dtype, "input", ("float16", *NUMBERS), "diag_embed")
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    out = append_simple_op("diag_embed", {"Input": vectors}, attrs)
    out.stop_gradient = True
    return out


def _triangle(layer: str, input: Variable, diagonal: int, name: str | None) -> Variable:
    check_variable_and_dtype(input, "x", NUMBERS, layer)
    if len(input.shape) < 2:
        raise ValueError(f"{layer} takes matrices, but {input.name!r} is {list(input.shape)}")
    check_type(diagonal, "diagonal", int, layer)
    attrs = {"diagonal": diagonal, "lower": layer == "tril"}
    return append_named(name or unique_name.generate(layer), "tril_triu", {"X": input}, attrs)


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Return the lower triangle of matrices: elements above diagonal `diagonal` are zero."""
    return _triangle("tril", input, diagonal, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Return the upper triangle of matrices: elements below diagonal `diagonal` are zero."""
    return _triangle("triu", input, diagonal, name)
