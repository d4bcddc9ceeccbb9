"""Variables of a scope as the inputs and outputs of a program of one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.framework import Block
from fluid.recording.var_types import VarDesc
from runtime.device import Place
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope, Variable
from runtime.tensors.scope_values import LoDTensorArray, SelectedRows

__all__ = ["Result", "declare", "sparse_result"]


@dataclass(frozen=True)
class Result:
    """An output: what is fetched of it, its value or its values and row numbers."""

    name: str
    fetched: list[str]
    height: int | None = None
    is_array: bool = False

    def store(self, scope: Scope, place: Place, values: Sequence[Any]) -> None:
        """Put what was fetched into a scope."""
        if self.is_array:
            array = scope.var(self.name).get_lod_tensor_array()
            array.clear()
            for item in values[0]:
                array.append(item)
            return
        if self.height is None:
            tensor = scope.var(self.name).get_tensor()
            tensor.set(values[0].array, place)
            if values[0].has_valid_recursive_sequence_lengths():
                tensor.set_lod(values[0].lod())
            return
        rows = scope.var(self.name).get_selected_rows()
        rows.set_height(self.height)
        rows.set_rows(np.asarray(values[1].array).tolist())
        rows.get_tensor().set(values[0].array, place)


def declare(block: Block, scope: Scope, name: str) -> dict[str, LoDTensor]:
    """Declare a variable of a scope in a block; returns what is fed for it.

    Raises ValueError where the scope has no value of this name.
    """
    var = scope.find_var(name)
    if var is not None and var.holds_rows:
        return declare_rows(block, name, var.get_selected_rows())
    if var is not None and var.holds_array:
        return declare_array(block, name, var.get_lod_tensor_array())
    tensor = filled(name, var)
    create(block, name, tensor)
    return {name: tensor}


def declare_array(block: Block, name: str, array: LoDTensorArray) -> dict[str, LoDTensor]:
    """Declare a tensor array and write its items; returns what is fed. Empty items are holes."""
    feed = {f"{name}@ITEM{i}": item for i, item in enumerate(array) if item.read() is not None}
    block.create_var(name=name, type=VarDesc.VarType.LOD_TENSOR_ARRAY)
    for item, tensor in feed.items():
        create(block, item, tensor)
        index = f"{item}@INDEX"
        block.create_var(name=index)
        number = float(item.rpartition("ITEM")[2])
        attrs = {"shape": [1], "dtype": VarDesc.VarType.INT64, "value": number}
        block.append_op("fill_constant", {}, {"Out": [index]}, attrs)
        block.append_op("write_to_array", {"X": [item], "I": [index]}, {"Out": [name]})
    return feed


def filled(name: str, var: Variable | None) -> LoDTensor:
    """The tensor of a variable; ValueError while it is empty."""
    tensor = None if var is None else var.get_tensor()
    if tensor is None or tensor.read() is None:
        raise ValueError(f"variable {name!r} has no value in the scope")
    return tensor


def create(block: Block, name: str, tensor: LoDTensor) -> None:
    """Declare a variable of the type of a tensor."""
    array = np.asarray(tensor.read())
    block.create_var(
        name=name, shape=list(array.shape), dtype=str(array.dtype), lod_level=len(tensor.lod())
    )


def declare_rows(block: Block, name: str, rows: SelectedRows) -> dict[str, LoDTensor]:
    """Declare a sparse variable, which a lookup of its rows makes; returns what is fed.

    Raises ValueError where there are not as many values as row numbers, or a number is none of the
    table's.
    """
    values = checked_values(name, rows)
    tensors: dict[str, Array] = {
        f"{name}@TABLE": np.zeros((rows.height(), values.shape[1]), values.dtype),
        f"{name}@IDS": np.array(rows.rows(), np.int64).reshape(-1, 1),
        f"{name}@VALUES": values,
    }
    feed = {variable_name: LoDTensor(array) for variable_name, array in tensors.items()}
    for variable_name, tensor in feed.items():
        create(block, variable_name, tensor)
    block.create_var(name=name)
    slots: dict[str, str] = dict(zip(("W", "Ids", "Out@GRAD"), tensors, strict=True))
    block.append_op("lookup_table_grad", slots, {"W@GRAD": [name]}, {"is_sparse": True})
    return feed


def checked_values(name: str, rows: SelectedRows) -> Array:
    """The values of sparse rows, an array of two axes."""
    values, numbers = rows.get_tensor().array, rows.rows()
    shape = () if values is None else values.shape
    if values is None or len(shape) != 2 or shape[0] != len(numbers):
        raise ValueError(
            f"SelectedRows {name!r} has values of shape {shape} and {len(numbers)} row numbers: "
            "expected two axes, and a row for each number"
        )
    wrong = [row for row in numbers if not 0 <= row < rows.height()]
    if wrong:
        raise ValueError(
            f"SelectedRows {name!r} has the row number {wrong[0]}, and a height of {rows.height()}"
        )
    return values


def sparse_result(block: Block, name: str, merged: bool) -> Result:
    """Fetch the values and the row numbers of a sparse variable, each row once if `merged`."""
    source, height = name, block.var(name).shape[0]
    if merged:
        source = f"{name}@MERGED"
        block.create_var(name=source)
        block.append_op("merge_selected_rows", {"X": [name]}, {"Out": [source]})
    fetched = [f"{name}@VALUES@OUT", f"{name}@ROWS@OUT"]
    kinds = ("get_tensor_from_selected_rows", "row_numbers")
    for kind, out in zip(kinds, fetched, strict=True):
        block.create_var(name=out)
        block.append_op(kind, {"X": [source]}, {"Out": [out]})
    return Result(name, fetched, height)


# ---- variables of a scope


def holds_rows(scope: Scope, name: str) -> bool:
    """Whether a variable of a scope holds SelectedRows."""
    var = scope.find_var(name)
    return var is not None and var.holds_rows


def has_no_rows(scope: Scope, name: str) -> bool:
    """Whether a variable of a scope holds SelectedRows without rows."""
    return holds_rows(scope, name) and not scope.var(name).get_selected_rows().rows()


def is_sparse(block: Block, name: str) -> bool:
    """Whether a variable of a block is sparse."""
    return block.var(name).type == VarDesc.VarType.SELECTED_ROWS


def values_of(scope: Scope, name: str) -> LoDTensor:
    """The tensor of a variable, or the values of its rows."""
    var = scope.find_var(name) or scope.var(name)
    return var.get_selected_rows().get_tensor() if var.holds_rows else var.get_tensor()


def copy_tensor(source: LoDTensor, target: LoDTensor, place: Place) -> None:
    """Copy values and LoD; does nothing if there are none."""
    array = source.read()
    if array is not None:
        target.set(array, place)
        target.set_lod(source.lod())


def declare_output(block: Block, scope: Scope, name: str) -> dict[str, LoDTensor]:
    """Declare an output; a tensor array has the items that it has in the scope, which are fed."""
    var = scope.find_var(name)
    if var is not None and var.holds_array:
        return declare_array(block, name, var.get_lod_tensor_array())
    block.create_var(name=name)
    return {}
