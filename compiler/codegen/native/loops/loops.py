"""Emits loops over axes: one iteration at a time, or vectors of lanes with a remainder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from compiler.codegen.native.loops.forms import Axis, Form
from compiler.codegen.native.loops.values import Values
from compiler.ir.dims import Size
from compiler.thresholds import threshold

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
    "sum_block", 128, "iterations", "so many are summed up before they are added to the total",
    small=2,
)  # fmt: skip


def block_of(sizes: Sequence[Size], count: int) -> tuple[int, int]:
    """The loop of a nest that is divided into blocks, and the iterations of one; -1 for none.

    The innermost loop runs `count` iterations at a time. A loop of unknown size is divided.

    >>> block_of([64, 3, 3], 1), block_of([64, 3, 3], 8), block_of([5, 1000], 8)
    ((0, 14), (0, 14), (1, 128))
    """
    depth = 1
    for level in range(len(sizes) - 1, -1, -1):
        size, most = sizes[level], max(1, SUM_BLOCK.value // depth)
        if not isinstance(size, int) or size > most:
            step = count if depth == 1 else 1
            return level, -(-most // step) * step
        depth *= size
    return -1, 0


@dataclass
class Loops(Values):
    """Emits loops over axes."""

    def extent(self, axis: Axis) -> Size | Value:
        """The iterations of an axis here: a number, a size, or what a value says."""
        for loop, end in self.body.ends.items():
            if axis in self.body.forms.loops[loop]:
                return self._end(end, axis.size)
        if axis.outer is None:
            return axis.size
        if isinstance(axis.chunk, int) and axis.chunk * axis.outer.size == axis.size:
            return axis.chunk
        return self.hoisted(("extent", axis), frozenset({axis.outer}), lambda: self._rest(axis))

    def _end(self, end: object, size: Size) -> Value:
        """A data-dependent number of iterations, at most a size."""
        count, most = self.as_index(end), self.size(size)  # type: ignore[arg-type]
        return self.f.select(self.f.compare("slt", count, most), count, most)

    def _rest(self, axis: Axis) -> Value:
        """The smaller of a chunk and what is left of its axis."""
        assert axis.outer is not None
        chunk = self.size(axis.chunk)
        start = self.times(self.index(Form(((axis.outer, 1),))), chunk)
        left = self.f.sub(self.size(axis.size), start)
        left = self.f.select(self.f.compare("slt", left, constant(I64, 0)), constant(I64, 0), left)
        return self.f.select(self.f.compare("slt", left, chunk), left, chunk)

    def bound_of(self, axis: Axis) -> Index:
        """The iterations of an axis as a number or value."""
        found = self.extent(axis)
        return found if isinstance(found, int | Value) else self.size(found)

    def over(self, axes: Sequence[Axis], body: Iteration, carried: Carried) -> Carried:
        """Loops over axes, the first outermost, one iteration at a time."""
        if not axes:
            return body(carried)
        axis, *rest = axes
        stop = self.bound_of(axis)
        self.mark()

        each = self._each(axis, lambda carried: self.over(rest, body, carried))
        return self.f.loop_if_any(0, stop, 1, each, carried)

    def over_copies(
        self, axes: Sequence[Axis], count: int, body: CopiesIteration, start: Carried, join: Join
    ) -> Carried:
        """Reduce over axes, `count` iterations of the innermost at a time, then the rest singly.

        `count` is a power of two; the iterations are copies, the first of them outermost. Blocks
        of iterations begin from `start` and are joined, so that rounding errors stay small.
        """
        blocked, steps = block_of([axis.size for axis in axes], count)

        def nest(level: int, carried: Carried) -> Carried:
            axis, is_inner = axes[level], level == len(axes) - 1
            stop = self.bound_of(axis)
            whole, step = (self._multiple(stop, count), count) if is_inner else (stop, 1)
            self.mark()
            one = self._copies(axis, 1, body)
            each = self._copies(axis, count, body)
            if not is_inner:
                each = self._each(axis, lambda carried: nest(level + 1, carried))
            if level == blocked:
                carried = self._in_blocks((whole, step, steps), each, carried, start, join)
            else:
                carried = self.f.loop_if_any(0, whole, step, each, carried)
            return self.f.loop_if_any(whole, stop, 1, one, carried) if is_inner else carried

        return nest(0, start)

    def _in_blocks(
        self, span: tuple[Index, int, int], each: LoopBody, carried: Carried, start: Carried,
        join: Join,
    ) -> Carried:  # fmt: skip
        """A loop in blocks that begin from `start`: `span` is its end, step and that of blocks."""
        stop, step, block = span
        if isinstance(stop, int) and stop <= block:
            return join(carried, self.f.loop_if_any(0, stop, step, each, start))

        def emit(first: Value, total: Carried) -> Carried:
            last, end = self.f.index(stop), self.f.add(first, constant(I64, block))
            end = self.f.select(self.f.compare("slt", end, last), end, last)
            return join(total, self.f.loop_if_any(first, end, step, each, start))

        return self.f.loop_if_any(0, stop, block, emit, carried)

    def _each(self, axis: Axis, body: Iteration) -> LoopBody:
        """One iteration of an axis."""

        def iteration(index: Value, carried: Carried) -> Carried:
            with self.level((axis, index)):
                return body(carried)

        return iteration

    def _copies(
        self, axis: Axis, count: int, body: CopiesIteration
    ) -> Callable[[Value, Carried], Carried]:
        """An iteration that emits some consecutive ones."""

        def iteration(index: Value, held: Carried) -> Carried:
            before = self.copies, self.copy
            with self.level((axis, index)):
                self.copies = [{**copy, axis: n} for n in range(count) for copy in before[0]]
                self.copy = self.copies[0]
                found = body(held, count)
            self.copies, self.copy = before
            return found

        return iteration

    # ---- lanes ----

    def over_lanes(self, axis: Axis, unroll: int, body: LaneIteration, carried: Carried) -> Carried:
        """A loop of vectors along an axis: `unroll` at a time, then single ones, then the rest."""
        stop, width = self.bound_of(axis), self.lane_width
        self.mark()
        done: Index = 0
        if unroll > 1:
            done = self._multiple(stop, width * unroll)
            carried = self._vectors(axis, (0, done), unroll, body, carried)
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
        axis: Axis,
        span: tuple[Index, Index],
        count: int,
        body: LaneIteration,
        carried: Carried,
    ) -> Carried:
        """Whole vectors, `count` of them in an iteration."""

        def iteration(index: Value, held: Carried) -> Carried:
            return self._in_lanes(
                axis, index, self.lane_width, None, lambda: body(held, count), count
            )

        step = self.lane_width * count
        start, stop = span
        if isinstance(start, int) and isinstance(stop, int) and stop - start == step:
            return iteration(constant(I64, start), carried)
        return self.f.loop_if_any(start, stop, step, iteration, carried)

    def _masked_rest(
        self, axis: Axis, done: Index, stop: Index, body: LaneIteration, carried: Carried
    ) -> Carried:
        """Single vectors, whose lanes from the end on are masked."""
        if isinstance(done, int) and isinstance(stop, int):
            whole = stop - stop % self.lane_width
            carried = self._vectors(axis, (done, whole), 1, body, carried)
            if whole == stop:
                return carried
            mask = _first_lanes(stop - whole, self.lane_width)
            index = constant(I64, whole)
            return self._in_lanes(axis, index, self.lane_width, mask, lambda: body(carried, 1), 1)

        def iteration(index: Value, held: Carried) -> Carried:
            mask = self._lanes_before(self.f.sub(self.f.index(stop), index))
            return self._in_lanes(axis, index, self.lane_width, mask, lambda: body(held, 1), 1)

        return self.f.loop_if_any(done, stop, self.lane_width, iteration, carried)

    def _lanes_before(self, count: Value) -> Value:
        """The mask of the first lanes; there may be more than 32 bits count."""
        width = constant(I64, self.lane_width)
        few = self.f.select(self.f.compare("slt", count, width), count, width)
        lanes = lane_numbers(I32.vector(self.lane_width))
        limit = self.f.splat(self.f.convert("trunc", few, I32), self.lane_width)
        return self.f.compare("slt", lanes, limit)

    def _scalar_rest(
        self, axis: Axis, done: Index, stop: Index, body: LaneIteration, carried: Carried
    ) -> Carried:
        """The elements that do not fill a vector, one by one."""

        def iteration(index: Value, held: Carried) -> Carried:
            return self._in_lanes(axis, index, 0, None, lambda: body(held, 0), 1)

        return self.f.loop_if_any(done, stop, 1, iteration, carried)

    def _in_lanes(
        self, axis: Axis, index: Value, lanes: int, mask: Value | None,
        body: Callable[[], Carried], count: int,
    ) -> Carried:  # fmt: skip
        """Emit an iteration with lanes along an axis, and copies for each vector."""
        before = self.lane, self.lanes, self.mask, self.copies
        with self.level((axis, index)):
            self.lane, self.lanes, self.mask = axis, lanes, mask
            steps = [n * max(lanes, 1) for n in range(count)]
            self.copies = [{**copy, axis: n} for copy in self.copies for n in steps]
            kept, self.copy = self.copy, self.copies[0]
            found = body()
            self.copy = kept
        self.lane, self.lanes, self.mask, self.copies = before
        return found


def _first_lanes(count: int, lanes: int) -> Value:
    """The mask of the first lanes."""
    bits = ", ".join(f"i1 {str(lane < count).lower()}" for lane in range(lanes))
    return Value(f"<{bits}>", Type(I1.element, lanes))
