"""Single ops on SelectedRows of a scope that programs have for tensors only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fluid.compat.old_names.op_variables import checked_values, holds_rows, values_of
from runtime.device import Place
from runtime.files.checkpoint import load_rows, save_rows
from runtime.tensors.scope import Scope

__all__ = ["ran_on_rows"]

Names = Mapping[str, Sequence[str]]

_DECISIVE = {"split_ids": "Ids", "sgd": "Param", "save": "X", "load": "Out"}
"""The slot of each of these ops whose variable decides whether they run on rows."""


def ran_on_rows(
    kind: str, slots: Names, attrs: Mapping[str, object], scope: Scope, place: Place
) -> bool:
    """Run an op whose decisive variable holds SelectedRows; False if it is another one.

    Raises ValueError for rows that do not fit, and as `save_rows` and `load_rows`.
    """
    if kind not in _DECISIVE or not holds_rows(scope, slots[_DECISIVE[kind]][0]):
        return False
    if kind == "split_ids":
        _split(scope, place, slots["Ids"][0], slots["Out"])
    elif kind == "sgd":
        _update(scope, place, slots)
    elif kind == "save":
        rows = scope.var(slots["X"][0]).get_selected_rows()
        values = checked_values(slots["X"][0], rows)
        save_rows(str(attrs["file_path"]), (tuple(rows.rows()), rows.height(), values))
    else:
        numbers, height, values = load_rows(str(attrs["file_path"]))
        _set(scope, place, slots["Out"][0], numbers, height, values)
    return True


def _set(
    scope: Scope, place: Place, name: str, numbers: Sequence[int], height: int, values: object
) -> None:
    rows = scope.var(name).get_selected_rows()
    rows.set_rows(numbers)
    rows.set_height(height)
    rows.get_tensor().set(values, place)


def _split(scope: Scope, place: Place, name: str, outputs: Sequence[str]) -> None:
    """Divide SelectedRows among outputs by row number, modulo the number of outputs."""
    rows = scope.var(name).get_selected_rows()
    values, numbers = checked_values(name, rows), np.array(rows.rows(), np.int64)
    for index, output in enumerate(outputs):
        mine = numbers % len(outputs) == index
        _set(scope, place, output, numbers[mine].tolist(), rows.height(), values[mine])


def _update(scope: Scope, place: Place, slots: Names) -> None:
    """Update a table of some rows by sparse gradients: a table of all its rows, in their order."""
    param, grad = (scope.var(slots[slot][0]).get_selected_rows() for slot in ("Param", "Grad"))
    positions = {number: position for position, number in enumerate(param.rows())}
    absent = [number for number in grad.rows() if number not in positions]
    if absent:
        raise ValueError(f"the table {slots['Param'][0]!r} has no row {absent[0]}")
    table = checked_values(slots["Param"][0], param).copy()
    steps = (
        checked_values(slots["Grad"][0], grad) * values_of(scope, slots["LearningRate"][0]).array
    )
    np.subtract.at(table, [positions[number] for number in grad.rows()], steps)
    _set(scope, place, slots["ParamOut"][0], param.rows(), param.height(), table)
