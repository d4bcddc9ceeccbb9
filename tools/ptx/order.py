"""Orders of CTAs, and of the sides of branches, drawn from a seed.

A GPU promises none: results of kernels must be the same bytes in every order, except for sums that
atomics accumulate in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Order:
    """The order of one launch, which follows from a seed and the number of the launch.

    >>> sorted(Order(1, 0).ctas(3))
    [0, 1, 2]
    """

    def __init__(self, seed: int, launch: int) -> None:
        self._random = np.random.default_rng([seed, launch])

    def ctas(self, count: int) -> list[int]:
        """The numbers of all CTAs, in the order in which they run."""
        return [int(cta) for cta in self._random.permutation(count)]

    def side(self, blocks: Sequence[int]) -> int:
        """Which of the blocks that different threads are at runs first."""
        return blocks[int(self._random.integers(len(blocks)))]
