"""Emits loops over axes: one iteration at a time, or vectors of lanes with a remainder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import (
    I1,
    I32,
    I64,
    Index,
    LoopBody,
    Type,
    Value,
    constant,
    lane_numbers,
)
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import Form, LoopAxis
from compiler.codegen.native.loops.indices import IndexEmitter
from compiler.codegen.native.loops.scopes import VectorAxis
from compiler.codegen.native.machine import Machine
from compiler.codegen.trace import Expr
from compiler.ir.dims import Size
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

Carried: TypeAlias = "list[Value]"
"""Values that iterations pass on."""

Iteration: TypeAlias = Callable[[Carried], Carried]
"""Emits one iteration, for all copies; returns the values it passes on."""

LaneIteration: TypeAlias = Callable[[Carried, int], Carried]
"""The same for an iteration of some vectors, or of one element for 0."""


Join: TypeAlias = Callable[[Carried, Carried], Carried]
"""Combines what two blocks of iterations pass on."""

CopiesIteration: TypeAlias = Callable[[Carried, int], Carried]
"""The same for a number of consecutive iterations, for all copies of each."""


SUM_BLOCK = threshold(
    "sum_block", 64, "additions to an accumulator",
    "a block of so many begins from zero and is added to the total", small=2,
)  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """How a reduction is added up in blocks, so that rounding errors stay small.

    Blocks of `steps` iterations of loop `level` of its nest, -1 for none, begin from `start`, and
    are joined to the total.
    """

    level: int
    steps: int
    start: Carried
    join: Join

    @staticmethod
    def of(sizes: Sequence[Size], start: Carried, join: Join) -> Blocks:
        """The blocks of loops of some sizes; one of unknown size is divided.

        >>> [Blocks.of(sizes, [], max).level for sizes in ([64, 3, 3], [5, 1000], [3, 3])]
        [0, 1, -1]
        """
        depth = 1
        for level in range(len(sizes) - 1, -1, -1):
            size, steps = sizes[level], max(1, SUM_BLOCK.value // depth)
            if not isinstance(size, int) or size > steps:
                return Blocks(level, steps, start, join)
            depth *= max(size, 1)
        return Blocks(-1, 0, start, join)

    def at(self, level: int) -> Blocks | None:
        """Itself for the loop that is divided."""
        return self if self.level == level else None


class LoopEmitter:
    """Emits loops over axes; vectors have `width` elements."""

    def __init__(self, body: Body, machine: Machine, indices: IndexEmitter, width: int) -> None:
        self.body = body
        self.machine = machine
        self.width = width
        self.indices = indices
        self.arguments = indices.arguments
        self.scopes = indices.scopes
        self.f = indices.f

    def extent(self, axis: LoopAxis) -> Size | Value:
        """The iterations of an axis here: a number, a size, or what a value says."""
        for loop, end in self.body.ends.items():
            if axis in self.body.forms.loops[loop]:
                return self._end(end, axis.size)
        if axis.outer is None:
            return axis.size
        if isinstance(axis.chunk, int) and axis.chunk * axis.outer.size == axis.size:
            return axis.chunk
        return self.scopes.hoisted(
            ("extent", axis), frozenset({axis.outer}), lambda: self._rest(axis)
        )

    def _end(self, end: Expr, size: Size) -> Value:
        """A data-dependent number of iterations, at most a size."""
        count, most = self.indices.atom(end), self.arguments.size(size)
        return self.f.select(self.f.compare("slt", count, most), count, most)

    def _rest(self, axis: LoopAxis) -> Value:
        """The smaller of a chunk and what is left of its axis."""
        assert axis.outer is not None
        chunk = self.arguments.size(axis.chunk)
        start = self.indices.times(self.indices.index(Form(((axis.outer, 1),))), chunk)
        left = self.f.sub(self.arguments.size(axis.size), start)
        left = self.f.select(self.f.compare("slt", left, constant(I64, 0)), constant(I64, 0), left)
        return self.f.select(self.f.compare("slt", left, chunk), left, chunk)

    def bound_of(self, axis: LoopAxis) -> Index:
        """The iterations of an axis as a number or value."""
        found = self.extent(axis)
        return found if isinstance(found, int | Value) else self.arguments.size(found)

    def over(
        self, axes: Sequence[LoopAxis], body: Iteration, carried: Carried,
        blocks: Blocks | None = None, level: int = 0,
    ) -> Carried:  # fmt: skip
        """Loops over axes, the first outermost, one iteration at a time."""
        if not axes:
            return body(carried)
        axis, *rest = axes
        stop = self.bound_of(axis)
        self.scopes.mark()

        def iteration(index: Value, carried: Carried) -> Carried:
            with self.scopes.level((axis, index)):
                return self.over(rest, body, carried, blocks, level + 1)

        here = None if blocks is None else blocks.at(level)
        return self._loop(stop, 1, iteration, carried, here)

    def over_copies(
        self,
        axes: Sequence[LoopAxis],
        count: int,
        body: CopiesIteration,
        start: Carried,
        join: Join,
    ) -> Carried:
        """Reduce over axes, `count` iterations of the innermost at a time, then the rest singly.

        `count` is a power of two; the iterations are copies, the first of them outermost.
        """
        *outer, inner = axes
        size = inner.size // count if isinstance(inner.size, int) else inner.size
        blocks = Blocks.of([*(axis.size for axis in outer), size], start, join)

        def innermost(carried: Carried) -> Carried:
            stop = self.bound_of(inner)
            whole = self._multiple(stop, count)
            self.scopes.mark()
            some, one = self._copies(inner, count, body), self._copies(inner, 1, body)
            carried = self._loop(whole, count, some, carried, blocks.at(len(outer)))
            return self.f.loop_if_any(whole, stop, 1, one, carried)

        return self.over(outer, innermost, start, blocks)

    def _loop(
        self, stop: Index, step: int, each: LoopBody, carried: Carried, blocks: Blocks | None
    ) -> Carried:
        """A loop from 0 on, in blocks if there are any."""
        if blocks is None:
            return self.f.loop_if_any(0, stop, step, each, carried)
        size = blocks.steps * step
        if isinstance(stop, int) and stop <= size:
            return blocks.join(carried, self.f.loop_if_any(0, stop, step, each, blocks.start))

        def block(first: Value, total: Carried) -> Carried:
            last, end = self.f.index(stop), self.f.add(first, constant(I64, size))
            end = self.f.select(self.f.compare("slt", end, last), end, last)
            return blocks.join(total, self.f.loop_if_any(first, end, step, each, blocks.start))

        return self.f.loop_if_any(0, stop, size, block, carried)

    def _copies(
        self, axis: LoopAxis, count: int, body: CopiesIteration
    ) -> Callable[[Value, Carried], Carried]:
        """An iteration that emits some consecutive ones."""

        def iteration(index: Value, carried: Carried) -> Carried:
            copies = [{**copy, axis: n} for n in range(count) for copy in self.scopes.copies]
            with self.scopes.level((axis, index)), self.scopes.unrolled(copies):
                return body(carried, count)

        return iteration

    # ---- lanes ----

    def over_lanes(
        self, axis: LoopAxis, unroll: int, body: LaneIteration, carried: Carried,
        blocks: Blocks | None = None,
    ) -> Carried:  # fmt: skip
        """A loop of vectors along an axis: `unroll` at a time, then single ones, then the rest."""
        stop, width = self.bound_of(axis), self.width
        self.scopes.mark()
        done: Index = 0
        if unroll > 1:
            done = self._multiple(stop, width * unroll)
            carried = self._vectors(axis, (0, done), unroll, body, carried, blocks)
        if self.machine.has_masks:
            return self._masked_rest(axis, done, stop, body, carried)
        whole = self._multiple(stop, width)
        carried = self._vectors(axis, (done, whole), 1, body, carried)
        return self._scalar_rest(axis, whole, stop, body, carried)

    def _multiple(self, stop: Index, step: int) -> Index:
        """The largest multiple of a step, a power of two, up to a number."""
        if isinstance(stop, int):
            return stop - stop % step
        return self.f.binary("and", stop, constant(I64, -step))

    def _vectors(
        self,
        axis: LoopAxis,
        span: tuple[Index, Index],
        count: int,
        body: LaneIteration,
        carried: Carried,
        blocks: Blocks | None = None,
    ) -> Carried:
        """Whole vectors, `count` of them in an iteration."""

        def iteration(index: Value, carried: Carried) -> Carried:
            return self._in_lanes(
                axis, index, self.width, None, lambda: body(carried, count), count
            )

        step = self.width * count
        start, stop = span
        if isinstance(start, int) and isinstance(stop, int) and stop - start == step:
            return iteration(constant(I64, start), carried)
        if start == 0:
            return self._loop(stop, step, iteration, carried, blocks)
        return self.f.loop_if_any(start, stop, step, iteration, carried)

    def _masked_rest(
        self, axis: LoopAxis, done: Index, stop: Index, body: LaneIteration, carried: Carried
    ) -> Carried:
        """Single vectors, whose lanes from the end on are masked."""
        if isinstance(done, int) and isinstance(stop, int):
            whole = stop - stop % self.width
            carried = self._vectors(axis, (done, whole), 1, body, carried)
            if whole == stop:
                return carried
            mask = _first_lanes(stop - whole, self.width)
            index = constant(I64, whole)
            return self._in_lanes(axis, index, self.width, mask, lambda: body(carried, 1), 1)

        def iteration(index: Value, carried: Carried) -> Carried:
            mask = self._lanes_before(self.f.sub(self.f.index(stop), index))
            return self._in_lanes(axis, index, self.width, mask, lambda: body(carried, 1), 1)

        return self.f.loop_if_any(done, stop, self.width, iteration, carried)

    def _lanes_before(self, count: Value) -> Value:
        """The mask of the first lanes; there may be more than 32 bits count."""
        width = constant(I64, self.width)
        few = self.f.select(self.f.compare("slt", count, width), count, width)
        lanes = lane_numbers(I32.vector(self.width))
        limit = self.f.splat(self.f.convert("trunc", few, I32), self.width)
        return self.f.compare("slt", lanes, limit)

    def _scalar_rest(
        self, axis: LoopAxis, done: Index, stop: Index, body: LaneIteration, carried: Carried
    ) -> Carried:
        """The elements that do not fill a vector, one by one."""

        def iteration(index: Value, carried: Carried) -> Carried:
            return self._in_lanes(axis, index, 0, None, lambda: body(carried, 0), 1)

        return self.f.loop_if_any(done, stop, 1, iteration, carried)

    def _in_lanes(
        self, axis: LoopAxis, index: Value, lanes: int, mask: Value | None,
        body: Callable[[], Carried], count: int,
    ) -> Carried:  # fmt: skip
        """Emit an iteration with lanes along an axis, and copies for each vector."""
        scopes = self.scopes
        steps = [n * max(lanes, 1) for n in range(count)]
        copies = [{**copy, axis: n} for copy in scopes.copies for n in steps]
        with (
            scopes.level((axis, index)),
            scopes.vectors(VectorAxis(axis, lanes, mask)),
            scopes.unrolled(copies),
        ):
            return body()


def _first_lanes(count: int, lanes: int) -> Value:
    """The mask of the first lanes."""
    bits = ", ".join(f"i1 {str(lane < count).lower()}" for lane in range(lanes))
    return Value(f"<{bits}>", Type(I1.element, lanes))
