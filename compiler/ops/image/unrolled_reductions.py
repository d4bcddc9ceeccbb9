"""The turns of a short sum or maximum in a kernel: one after the other, or a loop if they are many.

Written out, each lane goes through its few elements by itself, and neighbouring lanes read
neighbouring elements; what several results need of a turn is one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product as every_pair
from operator import add
from typing import Any

from compiler.ir.dims import Size, product
from compiler.ir.opdef.kernel_builder import KernelBuilder, Number

FEW = 32
"""Turns that are written out at most."""


class Turns:
    """All turns over some sizes; `all` has the indices of each, or those of a loop's turn."""

    def __init__(self, k: KernelBuilder, sizes: Sequence[Size]) -> None:
        self.k = k
        count = product(sizes)
        few = isinstance(count, int) and count <= FEW
        self.loop = None if few else k.loop(count)
        ranges = (range(size) for size in sizes if isinstance(size, int))
        written: list[tuple[Number, ...]] = [*every_pair(*ranges)] if few else []
        self.all = written if self.loop is None else [k.unravel(self.loop, sizes)]

    def fold(self, fn: str, values: Sequence[Number]) -> Number:
        """What all turns make, given a value for each of `all`; `fn` is sum, max or min."""
        if self.loop is not None:
            return getattr(self.k, fn)(values[0], self.loop)
        joins: dict[str, Any] = {"sum": add, "max": self.k.maximum, "min": self.k.minimum}
        return reduce(joins[fn], values)
