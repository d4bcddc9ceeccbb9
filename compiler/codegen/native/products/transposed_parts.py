"""The sum of partial gradients of filters, turned to filters first.

    out[f, c, s] = Σ over parts of parts[part, s, c, f]

Squares of as many (c, s) and filters as a vector has lanes are transposed in registers, so that
both sides are read and written in whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Call
from compiler.codegen.native.products.copying import transposed
from compiler.codegen.native.products.index import Indices, lane_mask, named
from compiler.ir.dims import Dim, Size, product


def transposed_sum_of_parts(
    machine: Machine, element: Type, parts: Size, kernel: int, channels: int, filters: int
) -> Call:
    """The kernel; its slots are "parts", "out" and the number of parts if it is open.

    `kernel` is the number of places in a kernel. A unit is as many (c, s) as a vector has lanes.
    """
    sizes = (parts,) if isinstance(parts, Dim) else ()
    label = f"sum_of_parts_k{kernel}_c{channels}_f{filters}"
    function, values, first, last = entry(label, [POINTER, POINTER, *(I64 for _ in sizes)])
    indices = Indices(function, dict(zip(sizes, values[2:], strict=True)))
    rows = _Rows(function, machine, element, indices, indices.of(parts))
    rows.kernel, rows.channels, rows.filters = kernel, channels, filters
    units = -(-kernel * channels // machine.lanes(element))

    def unit(number: Value, _: list[Value]) -> list[Value]:
        rows.emit(values[0], values[1], number)
        return []

    function.loop_if_any(first, last, 1, unit)
    flops = product([parts, kernel, channels, filters])
    nbytes = product([flops, element.nbytes]) + kernel * channels * filters * element.nbytes
    return Call(NativeKernel([named(function)], units, flops, nbytes), ("parts", "out", *sizes))


class _Rows:
    """Emits the filters of some (c, s)."""

    kernel: int
    channels: int
    filters: int

    def __init__(
        self, function: Function, machine: Machine, element: Type, indices: Indices, parts: Index
    ) -> None:
        self.function = function
        self.indices = indices
        self.parts = parts
        self.type = machine.vector(element)
        self.lanes = machine.lanes(element)
        self.nbytes = element.nbytes

    def emit(self, parts: Value, out: Value, number: Value) -> None:
        """All filters of a unit, a square after the other."""
        first = self.function.index(self.indices.mul(number, self.lanes))
        sources = [self._source(parts, self._row(first, lane)) for lane in range(self.lanes)]
        out = self.function.address(out, first, self.nbytes)
        whole = self.filters // self.lanes * self.lanes

        def square(filter: Value, _: list[Value]) -> list[Value]:
            self._square(sources, out, first, filter, self.lanes)
            return []

        self.function.loop_if_any(0, whole, self.lanes, square)
        if whole < self.filters:
            self._square(sources, out, first, self.function.index(whole), self.filters - whole)

    def _row(self, first: Value, lane: int) -> Index:
        """A (c, s) as its place in the output; the last one for those behind it."""
        return self.indices.least(self.indices.add(first, lane), self.kernel * self.channels - 1)

    def _source(self, parts: Value, row: Index) -> Value:
        """The first filter of a (c, s) in the first part."""
        channel, place = self.indices.digits(row, [1 << 62, self.kernel])
        source = self.indices.add(self.indices.mul(place, self.channels), channel)
        return self.indices.move(parts, source, self.filters, self.nbytes)

    def _square(
        self, sources: Sequence[Value], out: Value, first: Value, filter: Value, filters: int
    ) -> None:
        """Sum, transpose and store a square; `filters` of its columns exist."""
        f, size = self.function, self.kernel * self.channels
        mask = lane_mask(f, self.lanes, filters) if filters < self.lanes else None
        starts = [f.address(source, filter, self.nbytes) for source in sources]
        sums = transposed(f, self._sums(starts, mask))
        target = self.indices.move(out, filter, size, self.nbytes)
        at = [f.address(target, row * size, self.nbytes) for row in range(filters)]
        pairs = list(zip(sums, at, strict=False))
        if size % self.lanes == 0:
            return self._store(pairs, None)
        left = f.sub(f.constant(I64, size), first)
        is_whole = f.compare("uge", left, f.constant(I64, self.lanes))
        used = f.index(self.indices.least(left, self.lanes))
        f.choose(
            is_whole, self._storing(pairs, None),
            self._storing(pairs, lane_mask(f, self.lanes, used)),
        )  # fmt: skip
        return None

    def _sums(self, starts: Sequence[Value], mask: Value | None) -> list[Value]:
        """The vectors of filters, summed over parts in their order."""
        f, size = self.function, self.kernel * self.channels * self.filters

        def add(part: Index, held: list[Value]) -> list[Value]:
            offset = self.indices.mul(part, size)
            return [
                f.add(total, self._load(f.address(start, offset, self.nbytes), mask))
                for total, start in zip(held, starts, strict=True)
            ]

        return self.indices.repeat(0, self.parts, add, [zero(self.type)] * self.lanes)

    def _load(self, pointer: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.function.load(self.type, pointer)
        return self.function.masked_load(self.type, pointer, mask, zero(self.type))

    def _storing(
        self, pairs: Sequence[tuple[Value, Value]], mask: Value | None
    ) -> Callable[[], list[Value]]:
        def body() -> list[Value]:
            self._store(pairs, mask)
            return []

        return body

    def _store(self, pairs: Sequence[tuple[Value, Value]], mask: Value | None) -> None:
        for value, pointer in pairs:
            if mask is None:
                self.function.store(value, pointer)
            else:
                self.function.masked_store(value, pointer, mask)
