"""From samples, as readers give them, to the tensors of a feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fluid.checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluid.framework import Program, Variable, default_main_program
from runtime.device import Place
from runtime.tensor import LoDTensor

__all__ = ["DataFeeder", "check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]


class DataFeeder:
    """Turns a batch, a list of samples with a field for each variable, into a feed.

    `feed_list` has variables or their names in the order of the fields. Raises TypeError for
    what is neither.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str],
        place: Place,
        program: Program | None = None,
    ) -> None:
        block = (program or default_main_program()).global_block()
        self.place = place
        self.variables = [block.var(v) if isinstance(v, str) else v for v in feed_list]
        for var in self.variables:
            check_type(var, "feed_list", Variable, "DataFeeder")

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, LoDTensor]:
        """The tensors of a batch by name; sequences are joined, and their lengths kept.

        Raises ValueError for a sample with another number of fields, and where the values of a
        field do not make up the variable's shape.
        """
        columns: list[list[Any]] = [[] for _ in self.variables]
        for sample in iterable:
            if len(sample) != len(columns):
                raise ValueError(
                    f"a sample has {len(sample)} fields, but {len(columns)} variables are fed"
                )
            for column, value in zip(columns, sample, strict=True):
                column.append(value)
        pairs = zip(self.variables, columns, strict=True)
        return {var.name: self._tensor(var, column) for var, column in pairs}

    def _tensor(self, var: Variable, column: list[Any]) -> LoDTensor:
        lengths: list[list[int]] = []
        for _ in range(var.lod_level):
            lengths.append([len(sequence) for sequence in column])
            column = [value for sequence in column for value in sequence]
        tensor = LoDTensor()
        tensor.set(_array(var, column), self.place)
        if lengths:
            tensor.set_recursive_sequence_lengths(lengths)
        return tensor


def _array(var: Variable, values: list[Any]) -> np.ndarray:
    """The values in the shape of the variable, where that has one unknown size at most."""
    array = np.array(values, dtype=var.element.numpy)
    if array.ndim == len(var.shape) or var.shape.count(-1) > 1:
        return array
    try:
        return array.reshape(var.shape)
    except ValueError:
        raise ValueError(
            f"{var.name!r} is fed values of shape {array.shape}, which do not make up {var.shape}"
        ) from None
