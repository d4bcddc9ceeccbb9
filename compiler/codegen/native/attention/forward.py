"""The forward kernel of attention: products, softmax and products for a block of queries at a time.

A block's scores are computed transposed, [keys, queries]: the keys are rows of a product whose
right operand is the packed block of queries. So the softmax takes a lane for each query, and the
second product reads the exponentials of a key side by side. The scores of a block stay in the
second cache, in memory that its unit of work uses for one block after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.native.attention.dropout import TransposedDropout
from compiler.codegen.native.attention.softmax import TransposedSoftmax
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Call, Contraction, Finish, Steps
from compiler.codegen.native.products.copying import COPIES
from compiler.codegen.native.products.index import Indices, named
from compiler.codegen.native.products.microkernel import Microkernel
from compiler.codegen.native.products.nest import ContractionNest
from compiler.codegen.native.products.place import Pointers, ResultAddresses
from compiler.codegen.native.products.tiles import Tiling, choose_tiling, extent, tile_shapes
from compiler.ir.dims import Dim, Size, is_multiple, product
from compiler.support.thresholds import threshold

UNITS = threshold(
    "attention_units", 16, "units", "the blocks of an attention are divided into so many", small=3
)

QUERIES = Dim.named("queries_of_block")
"""The queries of the last block, if they are fewer."""

OF_QUERIES = frozenset({"q", "out", "mask", "d_q", "d_out"})
"""Operands that have a row for each query."""

ALL_TILES = 1 << 40
"""More tiles than any product has: all are one unit."""


def attention(machine: Machine, element: Type, spec: Attention) -> Steps:
    """The kernel of an attention; operands: those of the description; scratch: "scores"."""
    sizes = spec.open_sizes
    slots = [*(POINTER for _ in (*spec.operands, "scores")), *(I64 for _ in sizes)]
    function, values, first, last = entry("attention", slots)
    count = len(spec.operands)
    pointers = dict(zip(spec.operands, values, strict=False))
    open_sizes = dict(zip(sizes, values[count + 1 :], strict=True))
    block = QueryBlocks(function, machine, element, spec, open_sizes)
    block.emit(pointers, values[count], first, last)
    nbytes = spec.elements * element.nbytes
    kernel = NativeKernel([named(function)], UNITS.value, spec.flops, nbytes)
    call = Call(kernel, (*spec.operands, "scores", *sizes))
    return Steps((call,), scratch={"scores": product([UNITS.value, block.scratch])})


class QueryBlocks:
    """Emits the blocks of queries of an attention."""

    def __init__(
        self, function: Function, machine: Machine, element: Type, spec: Attention,
        sizes: Mapping[Dim, Value],
    ) -> None:  # fmt: skip
        self.function = function
        self.machine = machine
        self.element = element
        self.spec = spec
        self.sizes = sizes
        self.indices = Indices(function, sizes)
        self.lanes = machine.lanes(element)
        self.vectors, self.high = _score_tile(machine, spec.queries, self.lanes)
        self.block = self.vectors * self.lanes
        self.moves_with_queries = bool(spec.mask) and spec.mask[-2] != 0

    @property
    def scratch(self) -> Size:
        """Elements of a unit's memory."""
        return product([self.by_key, self.spec.keys]) + self.by_query

    @property
    def by_key(self) -> int:
        """Elements of a unit's memory for each key: scores, and those of a mask."""
        return self.block * (2 if self.moves_with_queries else 1)

    @property
    def by_query(self) -> int:
        """The other elements: the packed queries, and what results are multiplied by."""
        return self.block * (self.spec.width + 1)

    def emit(self, pointers: Pointers, scratch: Value, first: Value, last: Value) -> None:
        """The loop over units: each takes its share of the items, in order."""
        f, indices = self.function, self.indices
        counts = self.counts()
        total = f.index(indices.product(counts))
        scores = indices.mul(self.by_key, indices.of(self.spec.keys))
        size = indices.add(scores, self.by_query)

        def unit(number: Value, _: list[Value]) -> list[Value]:
            memory = indices.move(scratch, number, size, self.element.nbytes)
            following = f.add(number, f.constant(I64, 1))
            start, stop = (
                indices.divide(indices.mul(n, total), UNITS.value) for n in (number, following)
            )

            def item(place: Value, _: list[Value]) -> list[Value]:
                self.item(pointers, memory, indices.digits(place, counts))
                return []

            f.loop_if_any(start, stop, 1, item)
            return []

        f.loop_if_any(first, last, 1, unit)

    # ---- items ----

    def counts(self) -> list[Index]:
        """The counts of items: the blocks of each matrix."""
        queries = self.indices.of(self.spec.queries)
        blocks = self.indices.divide_up(queries, self.block)
        return [*map(self.indices.of, self.spec.stack), blocks]

    def item(self, pointers: Pointers, memory: Value, place: Sequence[Index]) -> None:
        """One block of queries."""
        *stack, block = place
        at = self.at_block(self.at_matrix(pointers, stack), self.indices.mul(block, self.block))
        left = self.left(self.indices.mul(block, self.block))
        parts = self.parts(memory)
        self.store_factors(self.exponentials(at, parts, left), parts["factors"])
        query = self.indices.mul(block, self.block)
        self.drop(at, parts, stack, query, lambda power: zero(power.type))
        self._results(at, parts, left)

    def at_matrix(self, pointers: Pointers, stack: Sequence[Index]) -> Pointers:
        """The pointers at a matrix of the stack."""
        at = dict(pointers)
        for name in pointers:
            for place, stride in zip(stack, self.spec.strides(name), strict=False):
                at[name] = self._moved(at[name], place, stride)
        return at

    def at_block(self, pointers: Pointers, query: Index) -> dict[str, Value]:
        """The pointers at a block, by its first query."""
        moving = {name: pointer for name, pointer in pointers.items() if name in OF_QUERIES}
        return {**pointers} | {
            name: self._moved(pointer, query, self.spec.strides(name)[-2])
            for name, pointer in moving.items()
        }

    def left(self, query: Index) -> Index:
        """The queries from one on."""
        return self.indices.sub(self.indices.of(self.spec.queries), query)

    def exponentials(
        self, at: dict[str, Value], parts: Mapping[str, Value], left: Index
    ) -> list[Value]:
        """Compute the exponentials of a block's scores; returns their sums, in vectors."""
        spec = self.spec
        self.pack(at["q"], parts["packed"], spec.width, spec.q, left)
        if self.moves_with_queries:
            self.pack(at["mask"], parts["rows"], spec.keys, spec.mask, left)
            at = {**at, "mask": parts["rows"]}
        self._scores(at, parts)
        softmax = TransposedSoftmax(
            self.function, self.machine.vector(self.element), self.vectors,
            self.indices.of(spec.keys),
        )  # fmt: skip
        return softmax.emit(parts["scores"])

    def drop(
        self, at: Pointers, parts: Mapping[str, Value], stack: Sequence[Index], query: Index,
        dropped: Callable[[Value], Value],
    ) -> None:  # fmt: skip
        """Replace the exponentials of a block that are dropped, if any are."""
        spec, indices = self.spec, self.indices
        if not spec.dropout:
            return
        matrix: Index = 0
        for place, count in zip(stack, spec.stack, strict=True):
            matrix = indices.add(indices.mul(matrix, indices.of(count)), place)
        row = indices.add(indices.mul(matrix, indices.of(spec.queries)), query)
        dropout = TransposedDropout(
            self.function, self.machine.vector(self.element), self.vectors,
            indices.of(spec.keys), is_multiple(spec.keys, 4), spec.dropout,
        )  # fmt: skip
        dropout.emit(parts["scores"], self.function.load(I64, at["rng"]), row, dropped)

    def _moved(self, pointer: Value, steps: Index, stride: Size) -> Value:
        return self.indices.move(pointer, steps, self.indices.of(stride), self.element.nbytes)

    def parts(self, memory: Value) -> dict[str, Value]:
        """The arrays in a unit's memory."""
        indices, parts = self.indices, dict[str, Value]()
        scores = indices.mul(indices.of(self.spec.keys), self.block)
        sizes: dict[str, Index] = {
            "packed": self.block * self.spec.width, "factors": self.block,
            "scores": scores, "rows": scores,
        }  # fmt: skip
        for name, size in sizes.items():
            parts[name] = memory
            memory = self.function.address(memory, size, self.element.nbytes)
        return parts

    def pack(
        self, source: Value, packed: Value, steps: Size, strides: tuple[Size, ...], left: Index
    ) -> None:
        """Copy rows of queries as columns; behind the last one it is repeated."""
        f, of = self.function, self.indices.of
        by_query, by_step = strides[-2:]
        kind = "rows" if by_query == 1 else "columns" if by_step == 1 else "apart"
        axes = [(f.index(of(steps)), f.index(of(by_step)))]
        vectors, columns = f.constant(I64, self.vectors), f.index(left)
        COPIES[kind](f, self.machine, self.element).emit(
            source, packed, axes, vectors, columns, f.index(of(by_query))
        )

    # ---- products ----

    def _scores(self, at: Pointers, parts: Mapping[str, Value]) -> None:
        """Emit the scores [keys, queries]: scale * k @ qᵀ + mask."""
        spec, scale = self.spec, self.spec.scale
        rows = {"a": spec.k[-2], "out": self.block}
        if spec.mask:
            rows["mask"] = self.block if self.moves_with_queries else spec.mask[-1]
        columns = {"out": 1, "mask": int(self.moves_with_queries)}

        def finish(f: Function, sums: list[Value], place: ResultAddresses) -> list[Value]:
            (value,) = sums
            if scale != 1.0:
                value = f.mul(value, f.constant(value.type, scale))
            return [f.add(value, place.load("mask")) if spec.mask else value]

        more = {"mask": at["mask"]} if spec.mask else {}
        operands = {"a": at["k"], "b": parts["packed"], "out": parts["scores"], **more}
        width = Axis(spec.width, {"a": spec.k[-1]})
        self.by_keys(operands, rows, width, Axis(self.block, columns), finish)

    def by_keys(
        self, operands: Pointers, rows: Mapping[str, Size], depth: Axis, columns: Axis,
        finish: Finish,
    ) -> None:  # fmt: skip
        """Emit a product [keys, queries] of rows of keys and the packed rows of queries."""
        contraction = Contraction(
            "scores", self.element, (), (Axis(self.spec.keys, rows), Axis(1)), (depth,), columns,
            dict.fromkeys(operands, self.element), panels="b", finish=finish,
        )  # fmt: skip
        unroll = choose_tiling(self.machine, self.element, extent(contraction), True).unroll
        tiling = Tiling(self.vectors, self.high, 1, unroll, block=ALL_TILES)
        self.contract(contraction, tiling, operands)

    def store_factors(self, sums: list[Value], factors: Value) -> None:
        """Store what the results of each query are multiplied by."""
        f = self.function
        for vector, total in enumerate(sums):
            inverse = f.div(f.constant(total.type, self.spec.factor), total)
            f.store(inverse, f.address(factors, vector * self.lanes, self.element.nbytes))

    def _results(self, at: Pointers, parts: Mapping[str, Value], left: Index) -> None:
        """Emit the products of exponentials and v, divided by the sums of the exponentials."""
        operands = {
            "a": parts["scores"], "b": at["v"], "out": at["out"], "factors": parts["factors"]
        }  # fmt: skip
        self.for_rows(left, lambda rows, sizes: self._rows(operands, rows, sizes))

    def for_rows(self, left: Index, emit: Callable[[Size, Mapping[Dim, Value]], object]) -> None:
        """Emit code for all queries of a block, and for fewer if the last block has fewer."""
        f, queries = self.function, self.spec.queries

        def whole() -> list[Value]:
            emit(self.block, self.sizes)
            return []

        def rest() -> list[Value]:
            emit(QUERIES, {**self.sizes, QUERIES: f.index(left)})
            return []

        if isinstance(queries, int) and queries % self.block == 0:
            whole()
        elif isinstance(queries, int) and queries < self.block:
            emit(queries, self.sizes)
        else:
            is_whole = f.compare("uge", f.index(left), f.constant(I64, self.block))
            f.choose(is_whole, whole, rest)

    def _rows(self, operands: Pointers, rows: Size, sizes: Mapping[Dim, Value]) -> None:
        """The results of some queries."""
        spec = self.spec

        def finish(f: Function, sums: list[Value], place: ResultAddresses) -> list[Value]:
            return [f.mul(sums[0], place.load("factors"))]

        contraction = Contraction(
            "results", self.element, (),
            (Axis(rows, {"a": 1, "out": spec.out[-2], "factors": 1}), Axis(1)),
            (Axis(spec.keys, {"a": self.block, "b": spec.v[-2]}),),
            Axis(spec.value_width, {"b": 1, "out": 1}),
            dict.fromkeys(("a", "b", "out", "factors"), self.element), finish=finish,
        )  # fmt: skip
        self.contract(contraction, self.tiling_of(contraction), operands, sizes)

    def tiling_of(self, spec: Contraction) -> Tiling:
        """The tiling of a product that is one unit, whose right operand is read where it lies."""
        tiling = choose_tiling(self.machine, self.element, extent(spec), False)
        return replace(tiling, order="tiles", block=ALL_TILES, prefetch=False)

    def contract(
        self, spec: Contraction, tiling: Tiling, operands: Pointers,
        sizes: Mapping[Dim, Value] | None = None,
    ) -> None:  # fmt: skip
        """Emit all of a contraction."""
        f, machine = self.function, self.machine
        indices = Indices(f, self.sizes if sizes is None else sizes)
        micro = Microkernel(f, spec, machine, tiling.unroll, indices)
        ContractionNest(f, spec, machine, tiling, indices, micro).emit_whole(operands)


def _score_tile(machine: Machine, queries: Size, lanes: int) -> tuple[int, int]:
    """The vectors of queries of a block, and the keys of a tile of scores."""
    shapes = dict(tile_shapes(machine))
    most = min(2, max(shapes))
    if isinstance(queries, int):
        most = min(most, max(1, -(-queries // lanes)))
    return most, shapes[most]
