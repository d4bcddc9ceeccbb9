"""Arrays that kernels prepare from constants, shared by all that load a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.ir.types import Array


class SharedArrays:
    """Arrays by a text that says how they are made, such as weights packed for a product.

    `stored` were made by an earlier process. If there are none, those of the first binding, which
    may be none, are given to `keep`, which may store them; later ones are those of other sizes, and
    are not shared, so that they are freed with the bindings that use them.

    If there are `stored` ones, the `unfilled` arrays that they were made of may have no values yet:
    `fill` computes these before another array is made of them.
    """

    def __init__(
        self,
        stored: Mapping[str, Array] | None = None,
        keep: Callable[[Mapping[str, Array]], object] | None = None,
        unfilled: Mapping[str, Array] | None = None,
        fill: Callable[[], object] | None = None,
    ) -> None:
        self._arrays: Mapping[str, Array] = stored or {}
        self._keep = keep
        self._fill = fill
        self.unfilled = unfilled or {}

    def find(self, made: str) -> Array | None:
        """The array that is made so; None if it is not shared."""
        return self._arrays.get(made)

    def fill(self) -> None:
        """Compute the values of the unfilled arrays; of two threads, both compute the same."""
        if self._fill is not None:
            self._fill()
            self._fill, self.unfilled = None, {}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Share the arrays of the first binding; of two threads that have equal ones, either's."""
        if self._arrays:
            return
        self._arrays = dict(arrays)
        keep, self._keep = self._keep, None
        if keep is not None:
            keep(arrays)
