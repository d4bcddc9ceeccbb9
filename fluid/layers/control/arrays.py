"""Tensor arrays, and the rank table by which loops over time sort sequences.

In eager mode, a tensor array is a list of variables, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from fluid import unique_name
from fluid.framework import Variable, in_dygraph_mode
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.shapes import concat, stack
from fluid.layers.tensor import assign
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import check_type, check_variable, check_variable_and_dtype
from fluid.recording.var_types import VarDesc

__all__ = [
    "array_length",
    "array_read",
    "array_write",
    "create_array",
    "reorder_lod_tensor_by_rank",
    "tensor_array_to_tensor",
]

ARRAY = VarDesc.VarType.LOD_TENSOR_ARRAY
RANK_TABLE = VarDesc.VarType.LOD_RANK_TABLE

TensorArray: TypeAlias = Variable | list[Variable]


def create_array(dtype: DTypeLike) -> Any:
    """Create an empty tensor array for `array_write`.

    >>> import fluid
    >>> fluid.layers.create_array("float32").type.name
    'LOD_TENSOR_ARRAY'
    """
    if in_dygraph_mode():
        return []
    helper = LayerHelper("array", dtype=dtype)
    return helper.create_variable(name=f"{helper.name}.out", type=ARRAY, dtype=dtype)


def array_write(x: Variable, i: Variable, array: TensorArray | None = None) -> Any:
    """Write `x` to index `i` (int64, one element) of an array, which is returned; default: a new
    array.

    >>> import fluid
    >>> x, i = fluid.data("x", [3, 4]), fluid.layers.fill_constant([1], "int64", 0)
    >>> fluid.layers.array_write(x, i).shape
    (3, 4)
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_write")
    check_variable(x, "x", "array_write")
    if in_dygraph_mode():
        return _written(x, i, [] if array is None else array)
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(name=f"{helper.name}.out", type=ARRAY, dtype=x.dtype)
    _check_kind(array, "array", ARRAY, "array_write")
    helper.append_op("write_to_array", inputs={"X": x, "I": i}, outputs={"Out": array})
    return array


def _written(x: Variable, i: Variable, array: TensorArray) -> list[Variable]:
    """Write to an index of a list, of which one more than the last appends."""
    variables, index = _list(array, "array_write"), _index(i)
    assert index <= len(variables), (
        f"the index {index} of array_write is greater than the length {len(variables)} of its array"
    )
    variables[index : index + 1] = [x]
    return variables


def _list(array: TensorArray, layer: str) -> list[Variable]:
    assert isinstance(array, list), f"the array of {layer} must be a list in eager mode"
    return array


def _index(i: Variable) -> int:
    return int(i)  # pyright: ignore[reportArgumentType] - a VarBase


def array_read(array: TensorArray, i: Variable) -> Variable:
    """Read the tensor at index `i` (int64, one element) of an array.

    >>> import fluid
    >>> x, i = fluid.data("x", [3, 4]), fluid.layers.fill_constant([1], "int64", 0)
    >>> fluid.layers.array_read(fluid.layers.array_write(x, i), i).shape
    (3, 4)
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    if in_dygraph_mode():
        return _list(array, "array_read")[_index(i)]
    var = _check_kind(array, "array", ARRAY, "array_read")
    helper = LayerHelper("array_read")
    return helper.append_result("read_from_array", {"X": var, "I": i}, dtype=var.dtype)


def array_length(array: TensorArray) -> Any:
    """Return the number of tensors in an array: int64 [1], in eager mode a number."""
    if in_dygraph_mode():
        return len(_list(array, "array_length"))
    _check_kind(array, "array", ARRAY, "array_length")
    helper = LayerHelper("array_length")
    out = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op("lod_array_length", inputs={"X": array}, outputs={"Out": out})
    return out


def tensor_array_to_tensor(
    input: TensorArray, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """Concatenate the tensors of an array along `axis`, or stack them if `use_stack`.

    The second result is the size of each along the axis, int32.
    """
    check_type(input, "input", (list, Variable), "tensor_array_to_tensor")
    if in_dygraph_mode():
        variables = _list(input, "tensor_array_to_tensor")
        sizes = np.array([var.shape[axis] for var in variables])
        joined = stack(variables, axis) if use_stack else concat(variables, axis)
        return joined, assign(sizes)
    helper = LayerHelper("tensor_array_to_tensor", input=input, name=name)
    out = helper.create_variable_for_type_inference(helper.input_dtype())
    index = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        "tensor_array_to_tensor",
        inputs={"X": input},
        outputs={"Out": out, "OutIndex": index},
        attrs={"axis": axis, "use_stack": use_stack},
    )
    return out, index


def _check_kind(value: object, name: str, kind: int, layer: str) -> Variable:
    """Return an argument; raises TypeError unless it is a variable of the given kind."""
    value = check_variable(value, name, layer)
    if value.type != kind:
        raise TypeError(
            f"{name} of {layer} must be a {VarDesc.VarType(kind).name}, but {value.name!r} is a "
            f"{value.type.name}"
        )
    return value


# ---- sequences by rank --------------------------------------------------------------------------


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """Rank the sequences of `x` at LoD level `level` by length, longest first."""
    check_type(x, "x", (Variable, list), "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    name = unique_name.generate("lod_rank_table")
    table = helper.create_variable(type=RANK_TABLE, name=name)
    attrs = {"level": level}
    helper.append_op("lod_rank_table", inputs={"X": x}, outputs={"Out": table}, attrs=attrs)
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """Return the length of the longest sequence of a rank table, int64 [1]."""
    helper = LayerHelper("max_seqence_len")
    return helper.append_result("max_sequence_len", {"RankTable": rank_table}, dtype="int64")


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """Split sequences by time step: tensor t has item t of each sequence longer than t, by rank."""
    check_variable(x, "x", "lod_tensor_to_array")
    check_variable(table, "table", "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    name = unique_name.generate("lod_tensor_to_array")
    array = helper.create_variable(name=name, type=ARRAY, dtype=x.dtype)
    inputs = {"X": x, "RankTable": table}
    helper.append_op("lod_tensor_to_array", inputs=inputs, outputs={"Out": array})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """Merge the time steps of `lod_tensor_to_array` back to sequences."""
    check_variable(x, "x", "array_to_lod_tensor")
    check_variable(table, "table", "array_to_lod_tensor")
    helper = LayerHelper("array_to_lod_tensor")
    inputs = {"X": x, "RankTable": table}
    return helper.append_result("array_to_lod_tensor", inputs, dtype=x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """Keep the rows of `x` (one per sequence) whose sequences are longer than `i`."""
    helper = LayerHelper("shrink_memory")
    inputs = {"X": x, "I": i, "RankTable": table}
    return helper.append_result("shrink_rnn_memory", inputs)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """Reorder the sequences (or rows) of `x` by a rank table.

    Raises TypeError if `rank_table` is no rank table.
    """
    check_variable(x, "x", "reorder_lod_tensor_by_rank")
    _check_kind(rank_table, "rank_table", RANK_TABLE, "reorder_lod_tensor_by_rank")
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    return helper.append_result("reorder_lod_tensor_by_rank", {"X": x, "RankTable": rank_table})


# ---- split and merge, select --------------------------------------------------------------------


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """Split sequences of an LoD level, or rows, into those where `mask` is true and the others."""
    check_variable(input, "input", "fluid.layers.split_lod_tensor")
    check_variable(mask, "mask", "fluid.layers.split_lod_tensor")
    check_type(level, "level", int, "fluid.layers.split_lod_tensor")
    helper = LayerHelper("split_lod_tensor")
    yes = helper.create_variable_for_type_inference(input.dtype)
    no = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        "split_lod_tensor",
        inputs={"X": input, "Mask": mask},
        outputs={"OutTrue": yes, "OutFalse": no},
        attrs={"level": level},
    )
    return yes, no


def merge_lod_tensor(
    in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0
) -> Variable:
    """Merge the two results of `split_lod_tensor`.

    `x` defines the LoD of the levels above `level`.
    """
    for name, var in {"in_true": in_true, "in_false": in_false, "x": x, "mask": mask}.items():
        check_variable(var, name, "fluid.layers.merge_lod_tensor")
    helper = LayerHelper("merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    attrs = {"level": level}
    return helper.append_result("merge_lod_tensor", inputs, attrs, dtype=in_true.dtype)


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """Return `inputs[mask]`; `mask` is int32 with one element."""
    helper = LayerHelper("select_input")
    check_type(inputs, "inputs", (list, tuple), "select_input")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_input")
    first = inputs[0]
    out = helper.create_variable(dtype=first.dtype, shape=first.shape, type=first.type)
    helper.append_op("select_input", inputs={"X": inputs, "Mask": mask}, outputs={"Out": out})
    return out


def select_output(
    input: Variable, outputs: Sequence[Variable], mask: Variable
) -> Sequence[Variable]:
    """Copy `input` to `outputs[mask]`; `mask` is int32 with one element."""
    helper = LayerHelper("select_output")
    check_variable(input, "input", "select_output")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper.append_op("select_output", inputs={"X": input, "Mask": mask}, outputs={"Out": outputs})
    return outputs
