"""The microkernel: sums of a register tile, and their way to memory.

The tile's sums are `rows` × `vectors` vectors. A step of the sum loads the vectors of the right
operand, broadcasts one element of the left operand for each row, and multiplies all pairs into
the sums. Long sums begin from zero for each block of steps, and the blocks are added up: rounding
errors grow with the steps of a block and the number of blocks, not with their product. At last
each vector goes through `finish` and to the outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import Function, Index, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Contraction
from compiler.codegen.native.products.epilogue import store_finished
from compiler.codegen.native.products.index import Indices, lane_mask
from compiler.codegen.native.products.place import Pointers, ResultAddresses
from compiler.codegen.native.products.prefetching import CACHE_LINE, RowPrefetch
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

BLOCK_STEPS = threshold(
    "product_block", 512, "steps of a sum", "products are added up in blocks of so many", small=4
)


Steps: TypeAlias = "Callable[[Index, Index, list[Value]], list[Value]]"
"""Emits the steps of an axis of the sum from one to another; returns the values after them."""


@dataclass(frozen=True)
class Panel:
    """Columns of a tile: vectors, and the lanes of the last one in use; None for all."""

    vectors: int
    lanes: Index | None = None


@dataclass(frozen=True)
class Tile:
    """Rows of a tile on the last two row axes, and its number among those of a panel."""

    high: int
    wide: int
    number: Index


@dataclass(frozen=True)
class Ahead:
    """What a tile prefetches: lines for each iteration of the innermost loop, from `pointer` on."""

    pointer: Value
    lines: int


class TileBody(ABC):
    """Emits what happens for one tile."""

    def __init__(
        self, function: Function, spec: Contraction, machine: Machine, unroll: int, indices: Indices
    ) -> None:
        self.function = function
        self.spec = spec
        self.indices = indices
        self.unroll = unroll
        self.type = machine.vector(spec.element)
        self.lanes = machine.lanes(spec.element)
        self.blocks = -1, 0

    @abstractmethod
    def emit(
        self, pointers: Pointers, counts: Sequence[Index], panel: Panel, tile: Tile,
        ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Emit a tile whose first elements are at `pointers`; `counts` are those of the sums."""


class Microkernel(TileBody):
    """Emits the sums of one tile, and their stores."""

    prefetch: RowPrefetch | None = None

    def emit(
        self, pointers: Pointers, counts: Sequence[Index], panel: Panel, tile: Tile,
        ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Emit the sums of a tile and their stores."""
        self.panel = panel
        self.mask = None if panel.lanes is None else self._mask(panel.lanes)
        self.lines = ahead.lines if ahead else 0
        self.offsets = [self._offset("a", *row) for row in self._rows(tile)]
        self.prefetch = RowPrefetch(
            self.function, self.spec, self.indices, pointers, tile.high, tile.wide,
            panel.vectors * self.lanes,
        )  # fmt: skip
        count = len(self.offsets) * panel.vectors
        start = self._places(pointers, tile) if self.spec.start else None
        sums, right = self._sums(start, count, pointers["b"])
        state = [right, *([ahead.pointer] if ahead else []), *sums]
        if 0 not in counts:
            self.blocks = self._blocks(counts)
            state = self._axes(0, counts, pointers["a"], state)
        self._finish(start or self._places(pointers, tile), state[len(state) - count :])

    def _sums(
        self, start: Sequence[ResultAddresses] | None, count: int, right: Value
    ) -> tuple[list[Value], Value]:
        """What the `count` sums begin from, and the right operand's first vector."""
        if start is None:
            return [zero(self.type)] * count, right
        return [place.load(self.spec.start) for place in start], right

    def _mask(self, lanes: Index) -> Value:
        return lane_mask(self.function, self.lanes, lanes)

    # ---- where a tile's elements are ----

    def _rows(self, tile: Tile) -> list[tuple[int, int]]:
        return [(high, wide) for high in range(tile.high) for wide in range(tile.wide)]

    def _offset(self, name: str, high: int, wide: int) -> Index:
        """Elements from a tile's first row to another one."""
        outer, inner = (self.indices.of(axis.stride(name)) for axis in self.spec.rows[-2:])
        return self.indices.add(self.indices.mul(outer, high), self.indices.mul(inner, wide))

    def _places(self, pointers: Pointers, tile: Tile) -> list[ResultAddresses]:
        """The places of a tile's vectors; the last one of a row is masked if it is not full.

        Their addresses are computed where they are used: beside the sums there is no register
        for them. Places of equal addresses share what is loaded.
        """
        spec, loaded, moved = self.spec, dict[str, Value](), dict[tuple[str, Index], Value]()
        places: list[ResultAddresses] = []
        for row in self._rows(tile):
            for vector in range(self.panel.vectors):
                at = {
                    name: self._move(pointer, name, row, vector, moved)
                    for name, pointer in pointers.items()
                    if name not in ("a", "b")
                }
                mask = self.mask if vector == self.panel.vectors - 1 else None
                places.append(
                    ResultAddresses(
                        self.function, self.lanes, spec.types, at, spec.columns, mask, loaded=loaded
                    )
                )
        return places

    def _move(
        self, pointer: Value, name: str, row: tuple[int, int], vector: int,
        moved: dict[tuple[str, Index], Value],
    ) -> Value:  # fmt: skip
        """An operand's address for a row and vector; equal ones are computed once, in `moved`."""
        nbytes = self.spec.types[name].nbytes
        column = self.indices.mul(
            self.indices.of(self.spec.columns.stride(name)), vector * self.lanes
        )
        offset = self.indices.add(self._offset(name, *row), column)
        if (name, offset) not in moved:
            moved[name, offset] = self.function.address(pointer, offset, nbytes)
        return moved[name, offset]

    # ---- the sum ----

    def _axes(
        self, level: int, counts: Sequence[Index], left: Value, state: list[Value]
    ) -> list[Value]:  # fmt: skip
        """Loops over the axes of the sum from `level` on.

        `state` is the right operand's address, the address to prefetch if there is one, and the
        sums; packed panels move on in it through all loops.
        """
        if level == len(counts) - 1:
            return self._innermost(counts[-1], left, state)
        axis = self.spec.sums[level]

        def body(_: Index, carried: list[Value]) -> list[Value]:
            left, right, *rest = carried
            inner = self._axes(level + 1, counts, left, [right, *rest])
            if not self.spec.panels:
                inner[0] = self._step(right, "b", axis, 1)
            return [self._step(left, "a", axis, 1), *inner]

        def loop(start: Index, stop: Index, carried: list[Value]) -> list[Value]:
            return self.indices.repeat(start, stop, body, carried)

        return self._in_blocks(level, counts[level], loop, [left, *state])[1:]

    def _blocks(self, counts: Sequence[Index]) -> tuple[int, int]:
        """The axis whose steps are added up in blocks, and the steps of a block; -1 for none."""
        depth = 1
        for level in range(len(counts) - 1, -1, -1):
            count, most = counts[level], max(1, BLOCK_STEPS.value // depth)
            if not isinstance(count, int) or count > most:
                return level, -(-most // self.unroll) * self.unroll if depth == 1 else most
            depth *= count
        return -1, 0

    def _in_blocks(
        self, level: int, count: Index, loop: Steps, carried: list[Value]
    ) -> list[Value]:
        """A loop over an axis of the sum, in blocks that begin from zero if it is that axis."""
        blocked, steps = self.blocks
        if level != blocked:
            return loop(0, count, carried)
        places = len(self.offsets) * self.panel.vectors

        def block(start: Index, carried: list[Value]) -> list[Value]:
            totals = carried[-places:]
            stop = self.indices.least(self.indices.add(start, steps), count)
            after = loop(start, stop, [*carried[:-places], *(zero(self.type) for _ in totals)])
            sums = after[-places:]
            return [
                *after[:-places],
                *(self.function.add(a, b) for a, b in zip(totals, sums, strict=True)),
            ]

        return self.function.loop_if_any(0, count, steps, block, carried)

    def _step(self, pointer: Value, name: str, axis: Axis, steps: int) -> Value:
        stride = self.indices.of(axis.stride(name))
        return self.indices.move(pointer, steps, stride, self.spec.types[name].nbytes)

    def _innermost(self, count: Index, left: Value, state: list[Value]) -> list[Value]:
        """The innermost axis in iterations of several steps, then the rest."""
        steps = min(self.unroll, count) if isinstance(count, int) else self.unroll
        whole = self.indices.mul(self.indices.divide(count, steps), steps)

        def loop(start: Index, stop: Index, carried: list[Value]) -> list[Value]:
            return self._iterations((start, stop), whole, steps, carried)

        carried = self._in_blocks(len(self.spec.sums) - 1, whole, loop, [left, *state])
        if isinstance(count, int) and isinstance(whole, int):
            rest = count - whole
            return self._iteration(rest, carried)[1:] if rest else carried[1:]
        return self._iterations((whole, count), count, 1, carried)[1:]

    def _iterations(
        self, span: tuple[Index, Index], count: Index, step: int, carried: list[Value]
    ) -> list[Value]:
        """Iterations of some steps over a span of the `count` steps of the innermost axis."""
        start, stop = span
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            return self._iteration(step, carried) if stop > start else carried

        def iteration(at: Value, held: list[Value]) -> list[Value]:
            if self.prefetch:
                self.prefetch.emit(at, count, step)
            return self._iteration(step, held)

        return self.function.loop_if_any(start, stop, step, iteration, carried)

    def _iteration(self, steps: int, carried: list[Value]) -> list[Value]:
        """Some steps of the innermost axis, written out."""
        left, right, *rest = carried
        ahead = self._prefetch(rest.pop(0)) if self.lines else []
        axis = self.spec.sums[-1]
        for step in range(steps):
            vectors = self._right(right, step)
            rest = self._products(self._step(left, "a", axis, step), vectors, rest)
            if not isinstance(self._right_stride(), int):
                right = self._step(right, "b", axis, 1)
        return [self._step(left, "a", axis, steps), self._after(right, steps), *ahead, *rest]

    def _prefetch(self, pointer: Value) -> list[Value]:
        for line in range(self.lines):
            self.function.prefetch(self.function.address(pointer, line, CACHE_LINE), 2)
        return [self.function.address(pointer, self.lines, CACHE_LINE)]

    def _right(self, pointer: Value, step: int) -> list[Value]:
        """The vectors of the right operand in a step."""
        size, stride = self.spec.element.nbytes, self._right_stride()
        start = step * stride if isinstance(stride, int) else 0
        addresses = [
            self.function.address(pointer, start + vector * self.lanes, size)
            for vector in range(self.panel.vectors)
        ]
        vectors = [self.function.load(self.type, address) for address in addresses[:-1]]
        if self.mask is None or self.spec.panels:
            return [*vectors, self.function.load(self.type, addresses[-1])]
        last = self.function.masked_load(self.type, addresses[-1], self.mask, zero(self.type))
        return [*vectors, last]

    def _right_stride(self) -> Index:
        """Elements of the right operand in a step of the innermost axis."""
        if self.spec.panels:
            return self.panel.vectors * self.lanes
        return self.indices.of(self.spec.sums[-1].stride("b"))

    def _after(self, pointer: Value, steps: int) -> Value:
        """The right operand after an iteration; an open stride has moved it in every step."""
        stride = self._right_stride()
        if not isinstance(stride, int):
            return pointer
        return self.function.address(pointer, steps * stride, self.spec.element.nbytes)

    def _products(self, left: Value, vectors: list[Value], sums: list[Value]) -> list[Value]:
        """Multiply each row's element with each vector into the sums."""
        size, result = self.spec.types["a"].nbytes, list[Value]()
        each_sum = iter(sums)
        for offset in self.offsets:
            row = self._row(self.function.address(left, offset, size))
            result += [self._multiply(row, vector, next(each_sum)) for vector in vectors]
        return result

    def _row(self, pointer: Value) -> Value:
        """A row's element in each lane."""
        return self.function.splat(self.function.load(self.spec.element, pointer), self.lanes)

    def _multiply(self, row: Value, vector: Value, total: Value) -> Value:
        """The products of a row's element and a vector, added to their sums."""
        return self.function.fma(row, vector, total)

    # ---- the results ----

    def _finish(self, places: Sequence[ResultAddresses], sums: Sequence[Value]) -> None:
        """Each vector of sums through the epilogue and to the outputs."""
        for place, value in zip(places, sums, strict=True):
            store_finished(self.spec.finish, self.spec.outputs, value, place)
