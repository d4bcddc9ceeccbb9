"""Contractions with one column: sums over lanes, as both operands have neighbours along the sum.

The microkernel would use one lane of its vectors. Here a vector holds consecutive steps of the
sum, and the lanes are added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.native.llvm_ir import Index, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import merged
from compiler.codegen.native.products.contraction import Contraction, Steps
from compiler.codegen.native.products.index import lane_mask
from compiler.codegen.native.products.microkernel import Ahead, Microkernel, Panel, Tile
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.place import Pointers
from compiler.codegen.native.products.tiles import Tiling, assumed
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

ROWS = threshold(
    "one_column_rows", 8, "rows",
    "a tile of a product with one column has so many, whose sums are in flight", small=3,
)  # fmt: skip
WORK = threshold(
    "one_column_work", 200_000, "multiplications",
    "a unit of a product with one column has so many", small=64,
)  # fmt: skip


def is_one_column(spec: Contraction, machine: Machine) -> bool:
    """Whether a contraction has one column, and vectors of neighbours along its sum."""
    inner = merged(spec.sums)[-1]
    if spec.columns.count != 1 or spec.dot or spec.panels or spec.part_of != 0:
        return False
    whole = isinstance(inner.count, int) and inner.count >= machine.lanes(spec.element)
    return whole and inner.stride("a") == 1 and inner.stride("b") == 1


def one_column_steps(
    spec: Contraction, machine: Machine, names: tuple[str, str] = ("a", "b")
) -> Steps:  # fmt: skip
    """The kernel of a contraction that `is_one_column`; `names` are its operands for a and b."""
    spec = replace(spec, sums=merged(spec.sums))
    row = product(axis.count for axis in (*spec.rows[-1:], *spec.sums))
    block = max(1, WORK.value // assumed(row))
    tiling = Tiling(1, 1, ROWS.value, 4, "tiles", block)
    call = contraction_kernel(spec, machine, tiling, OneColumn)
    return Steps((replace(call, arguments=(*names, *call.arguments[2:])),))


class OneColumn(Microkernel):
    """Emits the sums of one tile of rows and a single column."""

    def emit(
        self, pointers: Pointers, counts: Sequence[Index], panel: Panel, tile: Tile,
        ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Emit the sums of a tile and their stores."""
        self.panel, self.lines = panel, 0
        self.mask = lane_mask(self.function, self.lanes, 1)
        self.offsets = [self._offset("a", *row) for row in self._rows(tile)]
        state = [pointers["b"], *([zero(self.type)] * len(self.offsets))]
        if 0 not in counts:
            self.blocks = self._blocks(counts)
            state = self._axes(0, counts, pointers["a"], state)
        totals = [self._total(total) for total in state[1:]]
        places = self._places(pointers, tile)
        if self.spec.start:
            starts = [place.load(self.spec.start) for place in places]
            totals = [self.function.add(*pair) for pair in zip(totals, starts, strict=True)]
        self._finish(places, totals)

    def _total(self, lanes: Value) -> Value:
        """The sum of lanes, in the first lane."""
        return self.function.insert(zero(self.type), self.function.reduce("fadd", lanes), 0)

    def _innermost(self, count: Index, left: Value, state: list[Value]) -> list[Value]:
        """The innermost axis in whole vectors, then the steps that are left."""
        assert isinstance(count, int)
        whole, rest = divmod(count, self.lanes)
        steps = min(self.unroll, whole)
        done = whole // steps * steps

        def loop(start: Index, stop: Index, carried: list[Value]) -> list[Value]:
            return self._iterations((start, stop), done, steps, carried)

        carried = self._in_blocks(len(self.spec.sums) - 1, done, loop, [left, *state])
        if whole > done:
            carried = self._iteration(whole - done, carried)
        if rest:
            carried = self._multiplied(carried, lane_mask(self.function, self.lanes, rest), rest)
        return carried[1:]

    def _iteration(self, steps: int, carried: list[Value]) -> list[Value]:
        """Some vectors of the innermost axis, written out."""
        for _ in range(steps):
            carried = self._multiplied(carried, None, self.lanes)
        return carried

    def _multiplied(self, carried: list[Value], mask: Value | None, steps: int) -> list[Value]:
        """One vector of steps: the right operand's with that of each row, into its sum."""
        left, right, *sums = carried
        f, nbytes = self.function, self.spec.element.nbytes
        factor = self._vector(right, mask)
        rows = [self._vector(f.address(left, offset, nbytes), mask) for offset in self.offsets]
        sums = [f.fma(row, factor, total) for row, total in zip(rows, sums, strict=True)]
        return [f.address(left, steps, nbytes), f.address(right, steps, nbytes), *sums]

    def _vector(self, pointer: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.function.load(self.type, pointer)
        return self.function.masked_load(self.type, pointer, mask, zero(self.type))
