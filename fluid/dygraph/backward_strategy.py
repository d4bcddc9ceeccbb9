"""`BackwardStrategy`, an option of `backward` that has no effect here."""

from __future__ import annotations

__all__ = ["BackwardStrategy"]


class BackwardStrategy:
    """How gradients are summed: sums are always in the order of the ops here.

    `sort_sum_gradient` and `sorted_sum_gradient` are kept as scripts set them.
    """

    def __init__(self) -> None:
        self.sort_sum_gradient = False
        self.sorted_sum_gradient = False
