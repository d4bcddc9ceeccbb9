"""Variables of a scope as the inputs and outputs of a program of one op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from fluid.framework import Block
from runtime.device import Place
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope, Variable
from runtime.tensors.scope_values import SelectedRows

__all__ = ["Result", "declare", "sparse_result"]


@dataclass(frozen=True)
class Result:
    """An output: what is fetched of it, its value or its values and row numbers."""

    name: str
    fetched: list[str]
    height: int | None = None

    def store(self, scope: Scope, place: Place, values: Sequence[LoDTensor]) -> None:
        """Put what was fetched into a scope."""
        if self.height is None:
            tensor = scope.var(self.name).get_tensor()
            tensor.set(values[0].array, place)
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
    tensor = filled(name, var)
    create(block, name, tensor)
    return {name: tensor}


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
    tensors = {
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
