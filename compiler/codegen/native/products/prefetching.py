"""What a tile prefetches besides the next panel: lines of its results, and the next tile's rows.

Both may be far away in memory. A few lines are fetched in each iteration of the reduction loop,
since more at once would delay the loads of the sum itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.codegen.native.llvm_ir import Function, Index, Value
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.index import Indices
from compiler.codegen.native.products.place import Pointers
from compiler.support.dataclass import dataclass

CACHE_LINE = 64
FIRST = 3
"""The level of prefetches that reach the first cache."""


@dataclass(frozen=True)
class RowPrefetch:
    """Prefetches for a tile of `high` × `wide` rows by `columns` columns, first at `pointers`."""

    function: Function
    spec: Contraction
    indices: Indices
    pointers: Pointers
    high: int
    wide: int
    columns: int

    def emit(self, at: Value, steps: Index, unrolled: int) -> None:
        """Prefetch the part of step `at` of the loop: `steps` in iterations of `unrolled`.

        Nothing is prefetched if the number of steps is open, or if other loops surround this one.
        """
        if not isinstance(steps, int) or len(self.spec.sums) > 1:
            return
        row = self.indices.divide(self.indices.mul(at, self.high), steps)
        for name in results_read(self.spec, self.spec.rows[-2]):
            self._result_rows(name, row, -(-self.high * unrolled // steps))
        if self._are_adjacent():
            self._next_rows(at, unrolled)

    def _result_rows(self, name: str, first: Index, count: int) -> None:
        """Prefetch rows of an operand of the results."""
        nbytes = self.spec.types[name].nbytes
        for row in range(count):
            start = self._moved(name, self.pointers[name], self.indices.add(first, row))
            for place in range(self.wide):
                stride = self.indices.of(self.spec.rows[-1].stride(name))
                self._lines(self.indices.move(start, place, stride, nbytes), self.columns * nbytes)

    def _next_rows(self, at: Value, unrolled: int) -> None:
        """Prefetch a part of the left operand's rows for the tile below."""
        step = self.spec.pack * self.spec.types["a"].nbytes * self.high
        start = self._moved("a", self.pointers["a"], self.high)
        self._lines(self.function.address(start, at, step), step * unrolled)

    def _are_adjacent(self) -> bool:
        """True if the left operand's rows follow each other without a gap."""
        (sums,), pack = self.spec.sums, self.spec.pack
        if self.wide > 1 or sums.stride("a") != pack or not isinstance(sums.count, int):
            return False
        return self.spec.rows[-2].stride("a") == sums.count * pack

    def _moved(self, name: str, pointer: Value, rows: Index) -> Value:
        stride = self.indices.of(self.spec.rows[-2].stride(name))
        return self.indices.move(pointer, rows, stride, self.spec.types[name].nbytes)

    def _lines(self, start: Value, nbytes: int) -> None:
        for offset in range(0, nbytes, CACHE_LINE):
            self.function.prefetch(self.function.address(start, offset), FIRST)


def results_read(spec: Contraction, rows: Axis) -> Iterator[str]:
    """The operands that results are combined with, of which each row has elements of its own."""
    others = {"a", "b", spec.start, *spec.outputs}
    for name in spec.types:
        by_rows = spec.columns.stride(name) == 1 and rows.stride(name) != 0
        if name not in others and by_rows:
            yield name
