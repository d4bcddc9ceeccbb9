"""Short reductions in a kernel: unrolled, or a loop if they are long.

Unrolled, each program reads its few elements itself, and neighbouring programs read neighbouring
elements; a subexpression shared by several results is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product as every_pair
from operator import add
from typing import Any

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import KernelBuilder, Number
from compiler.support.thresholds import threshold

MAX_UNROLLED = threshold(
    "unrolled_iterations", 32, "iterations", "a longer reduction of windows or taps is a loop",
    small=3,
)  # fmt: skip


class UnrolledReduction:
    """All iterations over some sizes; `all` has the indices of each, or those of the loop index."""

    def __init__(self, k: KernelBuilder, sizes: Sequence[Size]) -> None:
        self.k = k
        count = product(sizes)
        few = isinstance(count, int) and count <= MAX_UNROLLED.value
        self.loop = None if few else k.loop(count)
        ranges = (range(size) for size in sizes if isinstance(size, int))
        written: list[tuple[Number, ...]] = [*every_pair(*ranges)] if few else []
        self.all = written if self.loop is None else [k.unravel(self.loop, sizes)]

    def fold(self, fn: str, values: Sequence[Number]) -> Number:
        """Reduce the values of all iterations, one for each of `all`; `fn` is sum, max or min."""
        if self.loop is not None:
            return getattr(self.k, fn)(values[0], self.loop)
        joins: dict[str, Any] = {"sum": add, "max": self.k.maximum, "min": self.k.minimum}
        return reduce(joins[fn], values)
