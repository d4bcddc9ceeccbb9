"""Pruners: they choose which slices of a parameter are least important, and remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from compiler.ir.types import Array

__all__ = ["Pruner", "StructurePruner"]

T = TypeVar("T")


class Pruner:
    """A pruner, for subclasses."""

    def prune(self, param: object) -> object:
        """Do nothing."""


class StructurePruner(Pruner):
    """Removes whole slices of parameters along an axis.

    `pruning_axis` has the axis by name of a parameter, `criterions` how slices are compared, which
    is always "l1_norm"; the name "*" stands for all other parameters.
    """

    def __init__(
        self, pruning_axis: Mapping[str, int] | None, criterions: Mapping[str, str]
    ) -> None:
        self.pruning_axis = pruning_axis
        self.criterions = criterions

    def cal_pruned_idx(
        self, name: str, param: Array, ratio: float, axis: int | None = None
    ) -> Array:
        """Return the indices of the slices of a parameter with the smallest sums of magnitudes.

        There are `ratio` times as many as slices, rounded. Raises AssertionError without an axis,
        KeyError for a parameter without a criterion and ValueError for another criterion.
        """
        criterion = _of(self.criterions, name)
        if axis is None:
            assert self.pruning_axis is not None, "pruning_axis should set if axis is None."
            axis = _of(self.pruning_axis, name)
        if criterion != "l1_norm":
            raise ValueError(f"the criterion of {name!r} must be 'l1_norm', but is {criterion!r}")
        count = round(param.shape[axis] * ratio)
        others = tuple(other for other in range(param.ndim) if other != axis % param.ndim)
        return np.abs(param).sum(axis=others).argsort()[:count]

    def prune_tensor(
        self, tensor: Array, pruned_idx: Sequence[int] | Array, pruned_axis: int, lazy: bool = False
    ) -> Array:
        """Return an array without the slices of these indices, or with zeros there if `lazy`."""
        indices = np.asarray(pruned_idx, "int64")
        if not lazy:
            return np.delete(tensor, indices, pruned_axis)
        kept = np.array(tensor)
        np.moveaxis(kept, pruned_axis, 0)[indices] = 0
        return kept


def _of(values: Mapping[str, T], name: str) -> T:
    return values[name] if name in values else values["*"]
