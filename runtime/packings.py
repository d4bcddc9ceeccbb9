"""Where buffers lie, for sizes that change from batch to batch.

The first sizes are packed exactly. Where others follow, batches of sequences above all, new ones
are packed a little larger than they are, so that the next batch may use the same places: its views
must be made, but nothing is packed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.module import lives_of
from compiler.pack import Life, Packing, check, pack
from compiler.plan import Buffer

KEPT = 8
"""Packings remembered; the one not used for longest goes."""

SPARE = 1.25
"""A packing serves sizes that fill it by 1 / SPARE at least."""

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
        self._known: list[_Known] = []

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
        if self._known and grows:
            return _Known(capacities, packed(roomy))
        return _Known(needed, packed(lives))


def packed(lives: Sequence[Life]) -> Packing:
    """Where each buffer lies, checked: no two that are alive at once overlap."""
    packing = pack(lives)
    check(lives, packing)
    return packing


def rounded(size: int) -> int:
    """The next size with a few leading bits only.

    >>> [rounded(size) for size in (5, 16, 17, 100, 1025)]
    [5, 16, 18, 104, 1152]
    """
    step = max(1, 2 ** (size.bit_length() - 1) // STEPS)
    return -(-size // step) * step
