"""Products that run beside their threads, until these wait for them.

A product is computed when it is waited for, as late as a GPU may: matrices that are overwritten
before, and sums that are read before, give wrong numbers. Until then the registers of a sum hold
NaN (of integers −1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.ir.types import Array

_UNKNOWN = np.uint32(0xFFFFFFFF)

Compute = Callable[[list[Array]], Sequence[Array]]
"""From the registers of a sum to those of the next one, as bits of all lanes."""


@dataclass
class Sum:
    """A register of a sum: its bits, the lanes that compute it, and how many products wait."""

    bits: Array
    lanes: Array
    products: int = 1


@dataclass(frozen=True)
class Product:
    """A product that is to be added to the sum in some registers, in some lanes."""

    slots: tuple[int, ...]
    lanes: Array
    compute: Compute


class Products:
    """The products of some CTAs that nobody has waited for."""

    def __init__(self) -> None:
        self._sums: dict[int, Sum] = {}
        self._pending: list[Product] = []
        self._groups: list[list[Product]] = []

    def begin(self, registers: list[Any], product: Product) -> None:
        """Start a product; products of one sum follow each other."""
        for slot in product.slots:
            bits = np.broadcast_to(registers[slot], product.lanes.shape)
            total = self._sums.get(slot)
            if total is None:
                self._sums[slot] = Sum(bits, product.lanes)
            else:
                total.bits = np.where(total.lanes, total.bits, bits)
                total.lanes = total.lanes | product.lanes
                total.products += 1
            registers[slot] = np.where(product.lanes, _UNKNOWN, bits)
        self._pending.append(product)

    def commit(self) -> None:
        """Close a group of products."""
        self._groups.append(self._pending)
        self._pending = []

    def wait(self, registers: list[Any], most: int) -> None:
        """Finish all but the latest groups."""
        while len(self._groups) > most:
            for product in self._groups.pop(0):
                self._finish(registers, product)

    def _finish(self, registers: list[Any], product: Product) -> None:
        sums = [self._sums[slot] for slot in product.slots]
        results = product.compute([total.bits for total in sums])
        for slot, total, bits in zip(product.slots, sums, results, strict=True):
            total.bits = np.where(product.lanes, bits, total.bits)
            total.products -= 1
            if not total.products:
                registers[slot] = np.where(total.lanes, total.bits, registers[slot])
                del self._sums[slot]
