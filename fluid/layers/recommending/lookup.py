"""Embedding tables and operations on their sparse gradients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import Attributes, DTypeLike
from fluid.recording.checks import check_dtype, check_type, check_variable, check_variable_and_dtype
from fluid.recording.var_types import VarDesc

__all__ = ["embedding", "get_tensor_from_selected_rows", "merge_selected_rows"]


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttrLike = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Look up rows of a new parameter of shape `size` [rows, width].

    `input` is int64 [..., 1], the result [..., width]. Index `padding_idx` (negative: from the end)
    yields zeros and is not trained. With `is_sparse` the gradient is SelectedRows. Raises TypeError
    for arguments of other types.

    >>> import fluid
    >>> words = fluid.layers.data("words", [7, 1], dtype="int64")
    >>> fluid.layers.embedding(words, size=[100, 16]).shape
    (-1, 7, 16)
    """
    attrs = lookup_attributes(size, is_sparse, is_distributed, padding_idx)
    return append_lookup("lookup_table", input, size, param_attr, dtype, attrs)


def lookup_attributes(
    size: Sequence[int], is_sparse: bool, is_distributed: bool, padding_idx: int | None
) -> dict[str, object]:
    """Return the attributes of a lookup op; a `padding_idx` of None becomes -1."""
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding_idx < 0:
        padding += size[0]
    prefetch = {"remote_prefetch": is_sparse and not is_distributed, "padding_idx": padding}
    return {"is_sparse": is_sparse, "is_distributed": is_distributed, **prefetch}


def append_lookup(
    op_type: str,
    input: Variable,
    size: Sequence[int],
    param_attr: ParamAttrLike,
    dtype: DTypeLike,
    attrs: Attributes,
) -> Variable:
    """Create a table and append the lookup op; TypeError for invalid arguments."""
    check_variable_and_dtype(input, "input", ["int64"], "embedding")
    check_dtype(dtype, "dtype", ["float16", "float32", "float64", "bfloat16"], "embedding")
    helper = LayerHelper("embedding", param_attr=param_attr)
    table = helper.create_parameter(helper.param_attr, size, dtype)
    return helper.append_result(op_type, {"Ids": input, "W": table}, attrs, dtype)


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Merge duplicate rows of a sparse gradient by summation."""
    check_variable(x, "x", "merge_selected_rows")
    return append_simple_op("merge_selected_rows", {"X": x}, name=name)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return the values of a sparse gradient as a tensor; TypeError unless `x` is SELECTED_ROWS."""
    check_type(x, "x", Variable, "get_tensor_from_selected_rows")
    if x.type != VarDesc.VarType.SELECTED_ROWS:
        raise TypeError(
            "The type of 'x' in get_tensor_from_selected_rows must be SELECTED_ROWS, "
            f"but {x.name!r} is {x.type.name}"
        )
    return append_simple_op("get_tensor_from_selected_rows", {"X": x}, name=name)


def _pull_box_sparse(  # pyright: ignore[reportUnusedFunction] - scripts of release 1.8 import it
    input: Variable | Sequence[Variable], size: int, dtype: str = "float32"
) -> Variable | list[Variable]:
    """Look up rows of width `size` in the table of BoxPS: zeros, and a warning says so.

    `input` is one or several int64 [..., 1]; the results [..., size] are as many. ValueError for a
    dtype other than float32.
    """
    if dtype != "float32":
        raise ValueError(f"BoxPS has float32 embeddings only, not {dtype}")
    warnings.warn("BoxPS is closed source and not here: its embeddings are zeros", stacklevel=2)
    ids = [input] if isinstance(input, Variable) else list(input)
    helper = LayerHelper("pull_box_sparse")
    outputs = [helper.create_variable_for_type_inference("float32") for _ in ids]
    helper.append_op("pull_box_sparse", {"Ids": ids}, {"Out": outputs}, {"size": size})
    return outputs[0] if len(outputs) == 1 else outputs
