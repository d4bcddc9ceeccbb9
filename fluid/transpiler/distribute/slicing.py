"""Cutting of parameters into blocks of whole rows, as `slice_variable` of release 1.8.5."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from compiler.support.dataclass import dataclass
from fluid.distributed.sharding import Slice

__all__ = ["VarBlock", "block_sizes", "row_slices", "slice_variable"]


class Sized(Protocol):
    """A variable, as it is sliced."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of its axes."""
        ...


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


def slice_variable(var_list: Iterable[Sized], slice_count: int, min_block_size: int) -> list[str]:
    """The blocks of several variables, each as "name:number:elements", in their order.

    Raises ValueError as `block_sizes` does.
    """
    blocks: list[str] = []
    for var in var_list:
        sizes = block_sizes(var.shape, slice_count, min_block_size)
        blocks += [str(VarBlock(var.name, i, size)) for i, size in enumerate(sizes)]
    return blocks


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
