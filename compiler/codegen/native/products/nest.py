"""The loops around the microkernel: units of work, panels of columns, tiles of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Value
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Call, Contraction
from compiler.codegen.native.products.dot_microkernel import DotMicrokernel
from compiler.codegen.native.products.index import Indices, named
from compiler.codegen.native.products.microkernel import (
    Ahead,
    Microkernel,
    Panel,
    Tile,
    TileBody,
)
from compiler.codegen.native.products.place import Pointers
from compiler.codegen.native.products.prefetching import CACHE_LINE
from compiler.codegen.native.products.tiles import Tiling, rests
from compiler.ir.dims import Size, divisor, product

WithPanel: TypeAlias = Callable[[Pointers, Panel], None]
WithTile: TypeAlias = Callable[[Pointers, Tile], None]


def contraction_kernel(
    spec: Contraction, machine: Machine, tiling: Tiling, body: type[TileBody] | None = None
) -> Call:
    """The kernel of a contraction; its slots are the operands of `types`, then open sizes."""
    spec = _with_two_row_axes(spec)
    sizes = spec.open_sizes
    slots = [*(POINTER for _ in spec.types), *(I64 for _ in sizes)]
    function, values, first, last = entry(spec.label, slots)
    indices = Indices(function, dict(zip(sizes, values[len(spec.types) :], strict=True)))
    body = body or (DotMicrokernel if spec.dot else Microkernel)
    micro = body(function, spec, machine, tiling.unroll, indices)
    nest = ContractionNest(function, spec, machine, tiling, indices, micro)
    pointers = dict(zip(spec.types, values, strict=False))
    nest.emit({name: nest.start(name, pointer) for name, pointer in pointers.items()}, first, last)
    kernel = NativeKernel([named(function)], nest.units(), _flops(spec), _nbytes(spec))
    return Call(kernel, (*spec.types, *sizes))


def _with_two_row_axes(spec: Contraction) -> Contraction:
    """The contraction with at least two row axes, as tiles have."""
    missing = 2 - len(spec.rows)
    if missing <= 0:
        return spec
    return replace(spec, rows=(*([Axis(1)] * (missing - 1)), *spec.rows, Axis(1)))


def _flops(spec: Contraction) -> Size:
    return product([2, spec.pack, *_counts(spec, [*spec.axes])])


def _nbytes(spec: Contraction) -> Size:
    """Bytes of the distinct elements of the operands, where each axis that moves one counts."""
    total: Size = 0
    for name, type in spec.types.items():
        moving = [axis for axis in spec.axes if axis.stride(name) != 0]
        if name == spec.panels:
            moving = [*spec.batch, *spec.sums, spec.columns]
        pack = spec.pack if spec.sums[-1] in moving else 1
        total = total + product([type.nbytes, pack, *_counts(spec, moving)])
    return total


def _counts(spec: Contraction, axes: Sequence[Axis]) -> list[Size]:
    """The counts of axes; a divided axis and that of its parts count its steps, not whole parts."""
    divided = [spec.batch[-1], spec.sums[0]] if spec.part_of != 0 else []
    if divided and all(any(other is axis for axis in axes) for other in divided):
        others = [axis for axis in axes if all(axis is not other for other in divided)]
        return [spec.part_of, *(axis.count for axis in others)]
    return [axis.count for axis in axes]


class ContractionNest:
    """Emits the loops of a contraction."""

    def __init__(
        self, function: Function, spec: Contraction, machine: Machine, tiling: Tiling,
        indices: Indices, micro: TileBody,
    ) -> None:  # fmt: skip
        self.function = function
        self.spec = spec
        self.tiling = tiling
        self.indices = indices
        self.lanes = machine.lanes(spec.element)
        self.micro = micro
        self.width = tiling.vectors * self.lanes
        self.high, self.wide = (indices.of(axis.count) for axis in spec.rows[-2:])
        self.columns = indices.of(spec.columns.count)
        self.depth = indices.product(indices.of(axis.count) for axis in spec.sums)
        self.depth = indices.add(self.depth, spec.dot.header if spec.dot else 0)
        self.whole = indices.divide(self.columns, self.width)
        self.panels = indices.add(self.whole, self._last_panels())

    def start(self, name: str, pointer: Value) -> Value:
        """An operand's first element."""
        offset = self.indices.of(self.spec.offsets.get(name, 0))
        return self.indices.move(pointer, 1, offset, self.spec.types[name].nbytes)

    # ---- units ----

    def units(self) -> Size:
        """The number of units: batch × outer rows × blocks, × panels unless tiles take them all."""
        high = self.spec.rows[-2].count
        blocks = _divide_up(_divide_up(high, self.tiling.high), self.tiling.block)
        columns = self.spec.columns.count
        whole = columns // self.width
        rest = _divide_up(columns - whole * self.width, self.lanes)
        if isinstance(rest, int):
            rest = min(rest, 1)
        panels = 1 if self.tiling.order == "tiles" else whole + rest
        outer = [axis.count for axis in (*self.spec.batch, *self.spec.rows[:-2])]
        return product([*outer, blocks, panels])

    def emit(self, pointers: Pointers, first: Value, last: Value) -> None:
        """The loop over units."""

        def unit(number: Value, _: list[Value]) -> list[Value]:
            self._unit(pointers, number)
            return []

        self.function.loop_if_any(first, last, 1, unit)

    def emit_whole(self, pointers: Pointers) -> None:
        """All of a contraction whose tiling makes one unit of it."""
        self._unit(pointers, self.function.constant(I64, 0))

    def _unit(self, pointers: Pointers, number: Value) -> None:
        """One unit: its place on each axis, then its tiles."""
        places, block, panel = self._places(number)
        for axis, place in zip((*self.spec.batch, *self.spec.rows[:-2]), places, strict=True):
            pointers = self._moved(pointers, axis, place)
        self.counts = self._counts(places[len(self.spec.batch) - 1] if self.spec.batch else 0)
        if panel is None:
            return self._rows(pointers, block, self._all_panels)

        def tiles(at: Pointers, columns: Panel) -> None:
            self._rows(at, block, lambda at, tile: self._tile(at, columns, tile))

        return self._panel(pointers, panel, tiles)

    def _places(self, number: Value) -> tuple[list[Index], Index, Index | None]:
        """A unit's place on the axes of the batch and outer rows, its block, and its panel."""
        of = self.indices.of
        batch = [of(axis.count) for axis in self.spec.batch]
        outer = [of(axis.count) for axis in self.spec.rows[:-2]]
        tiles = self.indices.divide_up(self.high, self.tiling.high)
        blocks = self.indices.divide_up(tiles, self.tiling.block)
        if self.tiling.order == "tiles":
            *places, block = self.indices.digits(number, [*batch, *outer, blocks])
            return places, block, None
        if self.tiling.order == "blocks":
            counts = [*batch, *outer, blocks, self.panels]
            *places, block, panel = self.indices.digits(number, counts)
            return places, block, panel
        *places, block = self.indices.digits(number, [*batch, self.panels, *outer, blocks])
        panel = places.pop(len(batch))
        return places, block, panel

    def _counts(self, part: Index) -> list[Index]:
        """Steps of each axis of the sum; the last part of a divided axis may have fewer."""
        counts = [self.indices.of(axis.count) for axis in self.spec.sums]
        if self.spec.part_of != 0:
            total = self.indices.of(self.spec.part_of)
            left = self.indices.sub(total, self.indices.mul(part, counts[0]))
            even = isinstance(total, int) and isinstance(counts[0], int) and total % counts[0] == 0
            counts[0] = counts[0] if even else self.indices.least(counts[0], left)
        return counts

    def _moved(self, pointers: Pointers, axis: Axis, steps: Index) -> Pointers:
        return {
            name: self.indices.move(
                pointer, steps, self.indices.of(axis.stride(name)), self.spec.types[name].nbytes
            )
            for name, pointer in pointers.items()
        }

    # ---- panels of columns ----

    def _last_panels(self) -> Index:
        """Panels after the whole ones: one of fewer vectors, or one of each vector if open."""
        rest = self.indices.sub(self.columns, self.indices.mul(self.whole, self.width))
        if isinstance(rest, int):
            return int(rest > 0)
        return self.indices.divide_up(rest, self.lanes)

    def _panel(self, pointers: Pointers, number: Index, then: WithPanel) -> None:
        """One panel by its number."""
        if self.panels == self.whole:
            return self._whole_panel(pointers, number, then)
        if self.whole == 0:
            return self._last_panel(pointers, number, then)
        index, whole = self.function.index(number), self.function.index(self.whole)

        def rest() -> list[Value]:
            self._last_panel(pointers, self.indices.sub(number, self.whole), then)
            return []

        def full() -> list[Value]:
            self._whole_panel(pointers, number, then)
            return []

        self.function.choose(self.function.compare("ult", index, whole), full, rest)
        return None

    def _all_panels(self, pointers: Pointers, tile: Tile) -> None:
        """All panels for one tile of rows."""

        def then(at: Pointers, panel: Panel) -> None:
            self._tile(at, panel, tile)

        def each(emit: Callable[[Pointers, Index, WithPanel], None]) -> Callable[..., list[Value]]:
            def body(number: Index, _: list[Value]) -> list[Value]:
                emit(pointers, number, then)
                return []

            return body

        last = self.indices.sub(self.panels, self.whole)
        self.indices.repeat(0, self.whole, each(self._whole_panel))
        self.indices.repeat(0, last, each(self._last_panel))

    def _whole_panel(self, pointers: Pointers, number: Index, then: WithPanel) -> None:
        column = self.indices.mul(number, self.width)
        then(self._at_column(pointers, column), Panel(self.tiling.vectors))

    def _last_panel(self, pointers: Pointers, number: Index, then: WithPanel) -> None:
        """A panel behind the whole ones, by its number among them."""
        column = self.indices.mul(self.whole, self.width)
        if not isinstance(self.columns, int):
            column = self.indices.add(column, self.indices.mul(number, self.lanes))
        rest = self.indices.sub(self.columns, column)
        at = self._at_column(pointers, column)
        if isinstance(rest, int):
            vectors = -(-rest // self.lanes)
            lanes = rest - (vectors - 1) * self.lanes
            return then(at, Panel(vectors, lanes if lanes < self.lanes else None))
        return then(at, Panel(1, self.indices.least(rest, self.lanes)))

    def _at_column(self, pointers: Pointers, column: Index) -> Pointers:
        """The pointers at a column that begins a panel; panels before it are whole."""
        moved = dict(self._moved(pointers, self.spec.columns, column))
        if self.spec.panels:
            name, nbytes = self.spec.panels, self.spec.element.nbytes
            moved[name] = self.indices.move(pointers[name], column, self.depth, nbytes)
        return moved

    # ---- tiles of rows ----

    def _rows(self, pointers: Pointers, block: Index, then: WithTile) -> None:
        """The tiles of one block of rows."""
        high, length = self.spec.rows[-2], self.tiling.high
        whole = self.indices.divide(self.high, length)
        start = self.indices.mul(block, self.tiling.block)
        tiles = self.indices.divide_up(self.high, length)
        stop = self.indices.least(self.indices.add(start, self.tiling.block), tiles)

        def each(size: int, first: Index) -> Callable[[Index, list[Value]], list[Value]]:
            def body(number: Index, _: list[Value]) -> list[Value]:
                at = self.indices.add(first, self.indices.mul(number, size))
                self._along(
                    self._moved(pointers, high, at), size, self.indices.divide(at, length), then
                )
                return []

            return body

        self.indices.repeat(start, self.indices.least(stop, whole), each(length, 0))
        if not isinstance(self.high, int):
            sizes = rests(length, divisor(high.count))
            return self._open_rest(whole, stop, sizes, each) if sizes else None
        rest = self.high - self.high // length * length
        if rest:
            body = each(rest, self.high - rest)
            self._when_less(whole, stop, lambda: body(0, []))
        return None

    def _open_rest(
        self, whole: Index, stop: Index, sizes: Sequence[int],
        each: Callable[[int, Index], Callable[[Index, list[Value]], list[Value]]],
    ) -> None:  # fmt: skip
        """The rows behind the whole tiles, in tiles of falling size."""

        def emit() -> None:
            done = self.indices.mul(whole, self.tiling.high)
            for size in sizes:
                count = self.indices.divide(self.indices.sub(self.high, done), size)
                self.indices.repeat(0, count, each(size, done))
                done = self.indices.add(done, self.indices.mul(count, size))

        self._when_less(whole, stop, emit)

    def _when_less(self, a: Index, b: Index, body: Callable[[], object]) -> None:
        if isinstance(a, int) and isinstance(b, int):
            if a < b:
                body()
            return
        index = self.function.index
        self.function.when(self.function.compare("ult", index(a), index(b)), body)

    def _along(self, pointers: Pointers, high: int, row: Index, then: WithTile) -> None:
        """The tiles along the last row axis."""
        axis, length = self.spec.rows[-1], self.tiling.wide
        whole = self.indices.divide(self.wide, length)
        each_row = self.indices.divide_up(self.wide, length)

        def each(size: int, first: Index) -> Callable[[Index, list[Value]], list[Value]]:
            def body(number: Index, _: list[Value]) -> list[Value]:
                at = self.indices.add(first, self.indices.mul(number, size))
                tile = self.indices.add(self.indices.mul(row, each_row), number)
                then(self._moved(pointers, axis, at), Tile(high, size, tile))
                return []

            return body

        self.indices.repeat(0, whole, each(length, 0))
        done = self.indices.mul(whole, length)
        if isinstance(self.wide, int) and isinstance(done, int):
            if self.wide > done:
                each(self.wide - done, done)(0, [])
            return
        for size in rests(length, divisor(axis.count)):
            count = self.indices.divide(self.indices.sub(self.wide, done), size)
            self.indices.repeat(0, count, each(size, done))
            done = self.indices.add(done, self.indices.mul(count, size))

    # ---- one tile ----

    def _tile(self, pointers: Pointers, panel: Panel, tile: Tile) -> None:
        self.micro.emit(pointers, self.counts, panel, tile, self._ahead(pointers, panel, tile))

    def _ahead(self, pointers: Pointers, panel: Panel, tile: Tile) -> Ahead | None:
        """The part of the next panel that a tile prefetches."""
        if not self.tiling.prefetch or not isinstance(self.depth, int):
            return None
        nbytes = self.depth * panel.vectors * self.lanes * self.spec.element.nbytes
        iterations = self._iterations()
        lines = -(-nbytes // CACHE_LINE // (iterations * self._tiles_of_a_panel())) or 1
        start = self.indices.mul(tile.number, iterations * lines * CACHE_LINE)
        return Ahead(self.function.address(
            self.function.address(pointers["b"], nbytes), start
        ), lines)  # fmt: skip

    def _iterations(self) -> int:
        """Iterations of the innermost loop of the sum; those of a whole part if it is divided."""
        counts = [axis.count for axis in self.spec.sums if isinstance(axis.count, int)]
        inner = counts[-1]
        iterations = inner // min(self.tiling.unroll, inner) + bool(
            inner % min(self.tiling.unroll, inner)
        )
        for count in counts[:-1]:
            iterations *= count
        return iterations

    def _tiles_of_a_panel(self) -> int:
        """Tiles that share the fetching of a panel."""
        block = self.tiling.block
        if self.tiling.order != "blocks" and isinstance(self.high, int):
            block = -(-self.high // self.tiling.high)
        return block * (-(-self.wide // self.tiling.wide) if isinstance(self.wide, int) else 4)


def _divide_up(size: Size, by: int) -> Size:
    return (size + (by - 1)) // by
