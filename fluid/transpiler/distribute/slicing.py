"""Cutting of parameters into blocks of whole rows, as `slice_variable` of release 1.8.5."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Slice", "VarBlock", "block_sizes", "slice_variable"]


@dataclass(frozen=True)
class VarBlock:
    """A block of a variable: its name, the number of the block, its number of elements.

    >>> str(VarBlock("w", 1, 500000))
    'w:1:500000'
    """

    varname: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.varname}:{self.offset}:{self.size}"


def block_sizes(shape: Sequence[int], slice_count: int, min_block_size: int) -> list[int]:
    """The numbers of elements of at most `slice_count` blocks, each of whole rows.

    A block has at least `min_block_size` elements, unless the whole has fewer. Raises ValueError
    for a count or a size below 1.

    >>> block_sizes([1000, 1000], 3, 8192)
    [334000, 334000, 332000]
    """
    if slice_count < 1 or min_block_size < 1:
        raise ValueError(
            f"slice_count and min_block_size must be positive, not {slice_count}, {min_block_size}"
        )
    numel = math.prod(shape)
    count = min(slice_count, max(1, numel // min_block_size))
    size = -(-numel // count)
    if len(shape) > 1:
        width = math.prod(shape[1:])
        size = -(-size // width) * width
    return [min(size, numel - start) for start in range(0, numel, size)]


def slice_variable(var_list: Iterable[Any], slice_count: int, min_block_size: int) -> list[str]:
    """The blocks of several variables, each as "name:number:elements", in their order.

    Raises ValueError as `block_sizes` does.
    """
    blocks: list[str] = []
    for var in var_list:
        sizes = block_sizes(var.shape, slice_count, min_block_size)
        blocks += [str(VarBlock(var.name, i, size)) for i, size in enumerate(sizes)]
    return blocks


@dataclass(frozen=True)
class Slice:
    """Consecutive rows of one parameter, which one server holds.

    `index` is its number among the `count` slices of the parameter, `start` its first row;
    `whole` is the shape of the parameter and `shape` that of the slice.
    """

    param: str
    index: int
    count: int
    start: int
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    endpoint: str

    @property
    def name(self) -> str:
        """The name of the variable on its server."""
        return self.named(self.param)

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.shape[0]

    @property
    def offset(self) -> int:
        """The number of elements before it."""
        return self.start * math.prod(self.whole[1:])

    @property
    def is_whole(self) -> bool:
        """Whether it is the only slice of its parameter."""
        return self.count == 1

    def named(self, name: str) -> str:
        """The name of the same slice of another variable, such as the gradient."""
        return name if self.is_whole else f"{name}.block{self.index}"


def row_slices(
    name: str, shape: tuple[int, ...], slice_count: int, min_block_size: int
) -> list[Slice]:
    """The slices of a parameter, on no server yet."""
    width = math.prod(shape[1:])
    sizes = block_sizes(shape, slice_count, min_block_size)
    rows = [size // width for size in sizes]
    starts = [sum(rows[:index]) for index in range(len(rows))]
    return [
        Slice(name, index, len(rows), start, (count, *shape[1:]), shape, "")
        for index, (start, count) in enumerate(zip(starts, rows, strict=True))
    ]
