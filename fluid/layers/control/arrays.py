"""Arrays of tensors, and what sorts sequences by length for loops over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid import unique_name
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
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


def create_array(dtype: Any) -> Variable:
    """An array of tensors without any yet, for `array_write`.

    >>> import fluid
    >>> fluid.layers.create_array("float32").type.name
    'LOD_TENSOR_ARRAY'
    """
    helper = LayerHelper("array", dtype=dtype)
    return helper.create_variable(name=f"{helper.name}.out", type=ARRAY, dtype=dtype)


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write `x` into an array, a new one by default, at index `i`, an int64 of one element.

    >>> import fluid
    >>> x, i = fluid.data("x", [3, 4]), fluid.layers.fill_constant([1], "int64", 0)
    >>> fluid.layers.array_write(x, i).shape
    (3, 4)
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_write")
    check_variable(x, "x", "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(name=f"{helper.name}.out", type=ARRAY, dtype=x.dtype)
    _check_kind(array, "array", ARRAY, "array_write")
    helper.append_op("write_to_array", inputs={"X": x, "I": i}, outputs={"Out": array})
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """The tensor of an array at index `i`, an int64 of one element.

    >>> import fluid
    >>> x, i = fluid.data("x", [3, 4]), fluid.layers.fill_constant([1], "int64", 0)
    >>> fluid.layers.array_read(fluid.layers.array_write(x, i), i).shape
    (3, 4)
    """
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    _check_kind(array, "array", ARRAY, "array_read")
    helper = LayerHelper("array_read")
    return helper.append_result("read_from_array", {"X": array, "I": i}, dtype=array.dtype)


def array_length(array: Variable) -> Variable:
    """How many tensors an array holds, as an int64 of one element."""
    _check_kind(array, "array", ARRAY, "array_length")
    helper = LayerHelper("array_length")
    out = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op("lod_array_length", inputs={"X": array}, outputs={"Out": out})
    return out


def tensor_array_to_tensor(
    input: Variable, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The tensors of an array side by side along an axis, or on a new axis with `use_stack`.

    The second result is how many places along the axis each takes, int32.
    """
    check_type(input, "input", (list, Variable), "tensor_array_to_tensor")
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


def _check_kind(value: Any, name: str, kind: int, layer: str) -> None:
    """TypeError where an argument is no variable of a kind."""
    check_variable(value, name, layer)
    if value.type != kind:
        raise TypeError(
            f"{name} of {layer} must be a {VarDesc.VarType(kind).name}, but {value.name!r} is a "
            f"{value.type.name}"
        )


# ---- sequences by rank --------------------------------------------------------------------------


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """The sequences of `x` at a level of its LoD, ranked by length, the longest first."""
    check_type(x, "x", (Variable, list), "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    name = unique_name.generate("lod_rank_table")
    table = helper.create_variable(type=RANK_TABLE, name=name)
    attrs = {"level": level}
    helper.append_op("lod_rank_table", inputs={"X": x}, outputs={"Out": table}, attrs=attrs)
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence of a rank table, as an int64 of one element."""
    helper = LayerHelper("max_seqence_len")
    return helper.append_result("max_sequence_len", {"RankTable": rank_table}, dtype="int64")


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """An array whose tensor t is entry t of every sequence that has one, the longest first."""
    check_variable(x, "x", "lod_tensor_to_array")
    check_variable(table, "table", "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    name = unique_name.generate("lod_tensor_to_array")
    array = helper.create_variable(name=name, type=ARRAY, dtype=x.dtype)
    inputs = {"X": x, "RankTable": table}
    helper.append_op("lod_tensor_to_array", inputs=inputs, outputs={"Out": array})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The sequences that `lod_tensor_to_array` took apart, put together again."""
    check_variable(x, "x", "array_to_lod_tensor")
    check_variable(table, "table", "array_to_lod_tensor")
    helper = LayerHelper("array_to_lod_tensor")
    inputs = {"X": x, "RankTable": table}
    return helper.append_result("array_to_lod_tensor", inputs, dtype=x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The rows of `x`, one a sequence, of the sequences that are longer than `i`."""
    helper = LayerHelper("shrink_memory")
    inputs = {"X": x, "I": i, "RankTable": table}
    return helper.append_result("shrink_rnn_memory", inputs)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The sequences of `x`, or its rows, in the order of a rank table.

    Raises TypeError for what is no rank table.
    """
    check_variable(x, "x", "reorder_lod_tensor_by_rank")
    _check_kind(rank_table, "rank_table", RANK_TABLE, "reorder_lod_tensor_by_rank")
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    return helper.append_result("reorder_lod_tensor_by_rank", {"X": x, "RankTable": rank_table})


# ---- two ways and back --------------------------------------------------------------------------


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The sequences of a level of LoD, or rows, for which `mask` is true, and the others."""
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
    """What `split_lod_tensor` took apart by `mask`, put together again.

    `x` says the LoD outside of `level`.
    """
    for name, var in {"in_true": in_true, "in_false": in_false, "x": x, "mask": mask}.items():
        check_variable(var, name, "fluid.layers.merge_lod_tensor")
    helper = LayerHelper("merge_lod_tensor")
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    attrs = {"level": level}
    return helper.append_result("merge_lod_tensor", inputs, attrs, dtype=in_true.dtype)


def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """The variable of `inputs` that `mask`, an int32 of one element, is the index of."""
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
    """Write `input` to the variable of `outputs` that `mask` is the index of."""
    helper = LayerHelper("select_output")
    check_variable(input, "input", "select_output")
    check_variable_and_dtype(mask, "mask", ["int32"], "select_output")
    check_type(outputs, "outputs", (list, tuple), "select_output")
    helper.append_op("select_output", inputs={"X": input, "Mask": mask}, outputs={"Out": outputs})
    return outputs
