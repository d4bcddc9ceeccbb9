"""Where buffers lie, for sizes that change from batch to batch.

The first sizes are packed as low as a search gets them. Where others follow, batches of sequences
above all, new ones are packed a little larger than they are, so that the next batch may use the
same places: its views must be made, but nothing is packed again. New sizes wait for no long search:
orders found before are tried, and greedy packing where they do not come near the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.module import lives_of
from compiler.pack import EFFORT, Life, Packing, Stack, check, lower_bound, pack
from compiler.plan import Buffer

KEPT = 8
"""Packings remembered; the one not used for longest goes."""

SPARE = 1.25
"""A packing serves sizes that fill it by 1 / SPARE at least."""

NEAR = 65 / 64
"""Times the bound that is low enough for sizes that are not the first."""

QUICK = 150
"""Steps of search while a batch waits for its packing: a few milliseconds."""

ORDERS = 3
"""Orders remembered, to be tried for other sizes."""

STEPS = 8
"""A size is rounded up by an eighth of it at most."""


@dataclass(frozen=True)
class _Known:
    """A packing and the bytes each buffer may have in it."""

    sizes: tuple[int, ...]
    packing: Packing

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether buffers of these sizes fit, without much waste."""
        fits = all(have >= need for have, need in zip(self.sizes, sizes, strict=True))
        return fits and sum(self.sizes) <= SPARE * sum(sizes)


class Packings:
    """The packings of one module's buffers."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = buffers
        self._names = [buffer.name for buffer in buffers]
        self._known: list[_Known] = []
        self._stacks: list[Stack] = []

    def pack(self, lives: Sequence[Life], effort: int = EFFORT, enough: int = 0) -> Packing:
        """Where buffers of these lives lie, checked: no two that are alive at once overlap.

        `effort` and `enough` are those of `compiler.pack.pack`. Raises PackError naming the two
        where they do.
        """
        packing = pack(lives, effort=effort, enough=enough)
        check(lives, packing, names=self._names)
        return packing

    def find(self, lives: Sequence[Life], sizes: Mapping[str, int]) -> Packing:
        """A packing for buffers of these lives, given the sizes they follow from."""
        needed = tuple([life.size for life in lives])
        known = next((each for each in self._known if each.serves(needed)), None)
        if known is None:
            known = self._made(lives, sizes, needed)
        else:
            self._known.remove(known)
        self._known = [known, *self._known[: KEPT - 1]]
        return known.packing

    def _made(
        self, lives: Sequence[Life], sizes: Mapping[str, int], needed: tuple[int, ...]
    ) -> _Known:
        roomy = lives_of(self._buffers, {n: rounded(size) for n, size in sizes.items()})
        capacities = tuple([life.size for life in roomy])
        grows = all(have >= need for have, need in zip(capacities, needed, strict=True))
        if not (self._known and grows):
            return _Known(needed, self._remembered(lives, self.pack(lives)))
        return _Known(capacities, self._packed_quickly(roomy))

    def _packed_quickly(self, lives: Sequence[Life]) -> Packing:
        """In an order found before, where one comes near the bound; else packed anew."""
        bound = lower_bound(lives)
        enough = int(NEAR * bound)
        settled = (stack.settle(lives, bound) for stack in self._stacks)
        low = (packing for packing in settled if packing and packing.height <= enough)
        packing = next(low, None)
        if packing is None:
            return self._remembered(lives, self.pack(lives, QUICK, enough))
        check(lives, packing, names=self._names)
        return packing

    def _remembered(self, lives: Sequence[Life], packing: Packing) -> Packing:
        self._stacks = [Stack.of(lives, packing), *self._stacks[: ORDERS - 1]]
        return packing


def rounded(size: int) -> int:
    """The next size with a few leading bits only.

    >>> [rounded(size) for size in (5, 16, 17, 100, 1025)]
    [5, 16, 18, 104, 1152]
    """
    step = max(1, 2 ** (size.bit_length() - 1) // STEPS)
    return -(-size // step) * step
