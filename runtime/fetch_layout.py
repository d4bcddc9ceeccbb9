"""Fetch layout: which results of a module are the value and the LoD of each fetch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import count, takewhile
from typing import Any, cast

from compiler.codegen.module import Module
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor


@dataclass(frozen=True)
class FetchLayout:
    """The positions of the value and the LoD of each fetch among the results of a module.

    `levels` are the positions of each fetch's LoD among the results. `repeats` is true if a name is
    fetched twice, so that its value has to be copied. `in_order`: the fetches are the results.
    """

    order: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    repeats: bool
    has_lod: bool
    in_order: bool

    @staticmethod
    def of(module: Module, fetch: tuple[str, ...]) -> FetchLayout:
        """The layout of a module's results."""
        results = [tensor.name for tensor in module.fetches]
        levels = tuple(_levels(name, results) for name in fetch)
        repeats = len(set(fetch)) < len(fetch)
        in_order = list(fetch) == results
        return FetchLayout(tuple(map(results.index, fetch)), levels, repeats, any(levels), in_order)

    def fetched(self, values: Sequence[Any]) -> list[Any]:
        """Return the value of each fetch, a LoDTensor if it has LoD, from the results of a step."""
        fetched = list(values) if self.in_order else [values[index] for index in self.order]
        if self.repeats:
            fetched = [copy.deepcopy(value) for value in fetched]
        return _cut(self, values, fetched) if self.has_lod else fetched


def _levels(name: str, results: Sequence[str]) -> tuple[int, ...]:
    """The positions of a fetch's LoD levels among the results, outermost first."""
    wanted = (f"{name}{LOD}{level}" for level in count())
    return tuple(
        results.index(level_name) for level_name in takewhile(results.__contains__, wanted)
    )


def _cut(layout: FetchLayout, values: Sequence[Array], fetched: Sequence[Array]) -> list[Any]:
    """Return the fetches, as LoDTensors if they have LoD."""
    return [
        _with_lod(value, [values[index] for index in levels]) if levels else value
        for value, levels in zip(fetched, layout.levels, strict=True)
    ]


def _with_lod(value: Any, levels: Sequence[Any]) -> Any:
    """Return a LoDTensor, or for a tensor array a list of them, None for items never written."""
    if not isinstance(value, list):
        return LoDTensor.cut(value, levels)
    items = zip(cast(list[Any], value), *levels, strict=True)
    return [None if item is None else LoDTensor.cut(item, lod) for item, *lod in items]
