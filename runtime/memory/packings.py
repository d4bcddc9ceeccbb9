"""Packings of buffers for sizes that change from batch to batch.

The first sizes are packed with a full search. If others follow, as in batches of sequences, the
sizes are rounded up a little, so that the next batch can use the same packing: its views are
created, but nothing is packed again. New sizes wait for no long search: orders found before are
tried, and greedy packing if they are not close to the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.module import buffer_lifetimes
from compiler.pack import EFFORT, Lifetime, Packing, Stack, check, lower_bound, pack
from compiler.plan import Buffer
from compiler.support.dataclass import dataclass

KEPT = 8
"""Number of packings cached; the least recently used is dropped."""

SPARE = 1.25
"""A packing is reused for sizes that fill at least 1 / SPARE of it."""

NEAR = 65 / 64
"""Multiple of the lower bound that is accepted for sizes other than the first."""

QUICK = 150
"""Search steps while a batch waits for its packing: a few milliseconds."""

ORDERS = 3
"""Number of orders remembered, to be tried for other sizes."""

STEPS = 8
"""A size is rounded up by at most one eighth."""


@dataclass(frozen=True)
class _Known:
    """A packing and the capacity in bytes of each buffer in it."""

    sizes: tuple[int, ...]
    packing: Packing

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether buffers of these sizes fit, without much waste."""
        fits = all(have >= need for have, need in zip(self.sizes, sizes, strict=True))
        return fits and sum(self.sizes) <= SPARE * sum(sizes)


class Packings:
    """The cached packings of one module's buffers."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._names = [buffer.name for buffer in buffers]
        self._known: list[_Known] = []
        self._stacks: list[Stack] = []

    def pack(self, lives: Sequence[Lifetime], effort: int = EFFORT, enough: int = 0) -> Packing:
        """Pack buffers of these lifetimes, and check that no two alive at once overlap.

        `effort` and `enough` are those of `compiler.pack.pack`. Raises PackError naming the two
        buffers that overlap.
        """
        packing = pack(lives, effort=effort, enough=enough)
        check(lives, packing, names=self._names)
        return packing

    def find(self, lives: Sequence[Lifetime], sizes: Mapping[str, int]) -> Packing:
        """Return a packing for buffers of these lifetimes, which follow from the sizes."""
        needed = tuple([life.size for life in lives])
        packing = next((candidate for candidate in self._known if candidate.serves(needed)), None)
        if packing is None:
            packing = self._made(lives, sizes, needed)
        else:
            self._known.remove(packing)
        self._known = [packing, *self._known[: KEPT - 1]]
        return packing.packing

    def _made(
        self, lives: Sequence[Lifetime], sizes: Mapping[str, int], needed: tuple[int, ...]
    ) -> _Known:
        roomy = buffer_lifetimes(self._buffers, {n: rounded(size) for n, size in sizes.items()})
        capacities = tuple([life.size for life in roomy])
        grows = all(have >= need for have, need in zip(capacities, needed, strict=True))
        if not (self._known and grows):
            return _Known(needed, self._remembered(lives, self.pack(lives)))
        return _Known(capacities, self._packed_quickly(roomy))

    def _packed_quickly(self, lives: Sequence[Lifetime]) -> Packing:
        """Pack in an order found before, if one is close to the bound; else pack from scratch."""
        bound = lower_bound(lives)
        enough = int(NEAR * bound)
        settled = (stack.settle(lives, bound) for stack in self._stacks)
        low = (packing for packing in settled if packing and packing.height <= enough)
        packing = next(low, None)
        if packing is None:
            return self._remembered(lives, self.pack(lives, QUICK, enough))
        check(lives, packing, names=self._names)
        return packing

    def _remembered(self, lives: Sequence[Lifetime], packing: Packing) -> Packing:
        self._stacks = [Stack.of(lives, packing), *self._stacks[: ORDERS - 1]]
        return packing


def rounded(size: int) -> int:
    """Round up to a number with few significant bits.

    >>> [rounded(size) for size in (5, 16, 17, 100, 1025)]
    [5, 16, 18, 104, 1152]
    """
    step = max(1, 2 ** (size.bit_length() - 1) // STEPS)
    return -(-size // step) * step
