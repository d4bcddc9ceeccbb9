"""Emits passes: reductions over a loop, and stores in loops.

A reduction keeps one accumulator for each vector in flight. Along lanes, they are combined by
halves at the end: first the vectors, then the lanes of one. The order depends on sizes only, so
that results are the same bits however work is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from compiler.codegen.kernel.analysis import accumulator_type, integer_limits, reduced_loop
from compiler.codegen.kernel.body import Store
from compiler.codegen.native.functions import arithmetic
from compiler.codegen.native.llvm_ir import Value
from compiler.codegen.native.loops.forms import Axis
from compiler.codegen.native.loops.keeping import Keeping
from compiler.codegen.native.loops.loops import Blocks, Carried, Join
from compiler.codegen.native.loops.passes import Pass, is_large, loop_lane
from compiler.codegen.native.loops.types import REGISTER, UNSIGNED, literal
from compiler.codegen.trace import Expr
from compiler.ir.types import DType
from compiler.support.thresholds import threshold

UNROLLED = threshold(
    "reduction_vectors", 4, "vectors", "as many have accumulators of their own in a reduction",
    small=2,
)  # fmt: skip
ACCUMULATORS = threshold(
    "accumulators", 8, "accumulators", "in flight in a loop along which there are no lanes", small=2
)


@dataclass
class Reductions(Keeping):
    """Emits the passes of a kernel."""

    # ---- reductions ----

    def reduce(self, each: Pass, parts: Sequence[Expr]) -> None:
        """Emit a pass of reductions; their results are known in the current loop."""
        self.sorts(each.parts)
        axes = [axis for loop in sorted(each.loops) for axis in self.body.loop_axes(loop)]
        lane = None if self.lane else loop_lane(self.body, each, self.lane_width, self.machine)
        if lane is None:
            totals = self._in_loops(each, parts, axes)
        else:
            kept = self.worth_keeping(each, lane)
            outer = [axis for axis in axes if axis is not lane]
            totals = self._along_lanes((each, parts), outer, lane, kept)
            self.know_kept(kept, reduced_loop(parts[0]))
        self._know(parts, totals)

    def _know(self, parts: Sequence[Expr], totals: Carried) -> None:
        """Note the results, which are in the order of copies, then of parts."""
        values = iter(totals)
        for _ in self.each_copy():
            for part in parts:
                axes = self.body.axes(part)
                found = self.spread_total(part, next(values))
                self.levels[-1].values[part, self.offsets(axes)] = found

    def spread_total(self, part: Expr, total: Value) -> Value:
        """A total in the type of its dtype."""
        element = REGISTER[part.dtype]
        if total.type.element == element.element:
            return total
        return self.f.convert("trunc", total, element) if element.bits > 1 else self._nonzero(total)

    def _nonzero(self, total: Value) -> Value:
        return arithmetic.is_true(self.f, total)

    def _in_loops(self, each: Pass, parts: Sequence[Expr], axes: Sequence[Axis]) -> Carried:
        """Reduce with an accumulator for each copy, or several if there are few."""
        scans = each.scans()
        count = _iterations_at_once(len(self.copies) * len(parts), each)
        if axes and not scans:
            return self._in_unrolled_loops(parts, axes, count)
        starts = [
            self._start(p, self.lanes_of_total(p)) for _ in self.copies for p in (*parts, *scans)
        ]

        def iteration(held: Carried) -> Carried:
            values, found = iter(held), list[Value]()
            for _ in self.each_copy():
                own = [next(values) for _ in (*parts, *scans)]
                self._run_scans(scans, own[len(parts) :])
                found += [self._combined(p, a) for p, a in zip(parts, own, strict=False)]
                found += [self.levels[-1].values[s, self.offsets(self.body.axes(s))] for s in scans]
            return found

        totals = self.over(axes, iteration, starts)
        step = len(parts) + len(scans)
        return [v for n in range(0, len(totals), max(step, 1)) for v in totals[n : n + len(parts)]]

    def _in_unrolled_loops(
        self, parts: Sequence[Expr], axes: Sequence[Axis], count: int
    ) -> Carried:
        """Reduce with an accumulator for each copy and for each of `count` iterations.

        Additions do not wait for each other, and sums have smaller rounding errors.
        """
        starts = [self._start(p, self.lanes_of_total(p)) for _ in self.copies for p in parts]
        size = len(starts)

        def iterations(held: Carried, count: int) -> Carried:
            found, own = list(held), 0
            for _ in self.each_copy():
                for part in parts:
                    found[own] = self._combined(part, held[own])
                    own += 1
            return found

        def join(a: Carried, b: Carried) -> Carried:
            every = [*parts] * (len(a) // len(parts))
            return [self._join(*each) for each in zip(every, a, b, strict=True)]

        held = self.over_copies(axes, count, iterations, starts * count, join)
        groups = [held[n : n + size] for n in range(0, len(held), size)]
        while len(groups) > 1:
            groups = [join(a, b) for a, b in zip(groups[::2], groups[1::2], strict=True)]
        return groups[0]

    def _run_scans(self, scans: Sequence[Expr], held: Sequence[Value]) -> None:
        """Add the current iteration to running sums."""
        for part, before in zip(scans, held, strict=True):
            key = part, self.offsets(self.body.axes(part))
            self.levels[-1].values[key] = self._combined(part, before)

    def lanes_of_total(self, part: Expr) -> int:
        """The lanes of a result."""
        return self.lanes_of(self.body.axes(part))

    def _along_lanes(
        self, reduced: tuple[Pass, Sequence[Expr]], outer: Sequence[Axis], lane: Axis,
        kept: Sequence[Expr],
    ) -> Carried:  # fmt: skip
        """Reduce along lanes, with an accumulator for each vector in flight."""
        each, parts = reduced
        unroll = fitting(2 if is_large(each) else UNROLLED.value, lane, self.lane_width)
        vectors = [self._start(p, self.lane_width) for p in parts for _ in range(unroll)]
        singles = [] if self.machine.has_masks else [self._start(p, 0) for p in parts]

        def iteration(held: Carried, count: int) -> Carried:
            found = list(held)
            places = range(count or 1)
            for place, _ in zip(places, self.each_copy(), strict=True):
                for number, part in enumerate(parts):
                    at = number * unroll + place if count else len(vectors) + number
                    found[at] = self._combined(part, held[at])
                self.keep(kept, reduced_loop(parts[0]))
            return found

        def join(a: Carried, b: Carried) -> Carried:
            vectors = [part for part in parts for _ in range(unroll)]
            every = [*vectors, *(parts if singles else ())]
            return [self._join(*each) for each in zip(every, a, b, strict=True)]

        blocks = self._blocks_of_lanes(outer, lane, unroll, vectors + singles, join)

        def over_lanes(carried: Carried) -> Carried:
            return self.over_lanes(lane, unroll, iteration, carried, blocks.at(len(outer)))

        held = self.over(outer, over_lanes, vectors + singles, blocks)
        return [self._folded(p, n, held, unroll, len(vectors)) for n, p in enumerate(parts)]

    def _blocks_of_lanes(
        self, outer: Sequence[Axis], lane: Axis, unroll: int, start: Carried, join: Join
    ) -> Blocks:
        """The blocks of a reduction along lanes, whose loop runs some vectors at a time."""
        size = lane.iterations
        iterations = size // (unroll * self.lane_width) if isinstance(size, int) else size
        return Blocks.of([*(axis.size for axis in outer), iterations], start, join)

    def _folded(self, part: Expr, number: int, held: Carried, unroll: int, vectors: int) -> Value:
        """Combine the accumulators of a reduction into one number."""
        own = held[number * unroll : (number + 1) * unroll]
        while len(own) > 1:
            pairs = zip(own[::2], own[1::2], strict=False)
            own = [self._join(part, a, b) for a, b in pairs] + own[len(own) & ~1 :]
        total = own[0]
        while total.type.lanes > 1:
            half = total.type.lanes // 2
            low = self.f.shuffle(total, total, range(half))
            total = self._join(part, low, self.f.shuffle(total, total, range(half, 2 * half)))
        total = self.f.extract(total, 0)
        singles = held[vectors:]
        return self._join(part, total, singles[number]) if singles else total

    def _start(self, part: Expr, lanes: int) -> Value:
        """The identity of a reduction."""
        dtype = accumulator_type(part.dtype)
        return literal(REGISTER[dtype].vector(lanes), _identity(part, dtype))

    def _combined(self, part: Expr, total: Value) -> Value:
        """The accumulator with the current iteration's value, unless that is out of bounds."""
        dtype, value = accumulator_type(part.dtype), part.args[0]
        lanes = total.type.lanes
        if _is_product(part, dtype) and self.mask is None:
            a, b = (self.converted(each, dtype, lanes) for each in cast(Expr, value).args)
            return self.f.fma(a, b, total)
        found = self.converted(value, dtype, lanes)
        if self.mask is not None and lanes and part.fn == "reduce":
            found = self.f.select(self.mask, found, self._start(part, lanes))
        return self._join(part, total, found)

    def _join(self, part: Expr, a: Value, b: Value) -> Value:
        f, unsigned = self.f, part.dtype in UNSIGNED
        match part.extra if part.fn == "reduce" else "sum":
            case "sum":
                return f.add(a, b)
            case "prod":
                return f.mul(a, b)
            case "max":
                return arithmetic.extreme("gt", signed=not unsigned)(f, a, b)
            case _:
                return arithmetic.extreme("lt", signed=not unsigned)(f, a, b)

    # ---- stores ----

    def store_pass(self, each: Pass) -> None:
        """Emit stores inside loops."""
        self.sorts(each.parts)
        axes = [axis for loop in sorted(each.loops) for axis in self.body.loop_axes(loop)]
        lane = (
            None
            if self.lane or not axes
            else loop_lane(self.body, each, self.lane_width, self.machine)
        )

        def lanes_iteration(held: Carried, count: int) -> Carried:
            self.store_all(each.stores)
            return held

        if lane is None:
            self._stores_in_loops(each, axes)
        else:
            outer = [axis for axis in axes if axis is not lane]
            unroll = fitting(1 if is_large(each) else 2, lane, self.lane_width)
            self.over(outer, lambda held: self.over_lanes(lane, unroll, lanes_iteration, held), [])

    def _stores_in_loops(self, each: Pass, axes: Sequence[Axis]) -> None:
        scans = each.scans()
        starts = [self._start(p, self.lanes_of_total(p)) for _ in self.copies for p in scans]

        def iteration(held: Carried) -> Carried:
            values, found = iter(held), list[Value]()
            for _ in self.each_copy():
                self._run_scans(scans, [next(values) for _ in scans])
                found += [self.levels[-1].values[s, self.offsets(self.body.axes(s))] for s in scans]
            self.store_all(each.stores)
            return found

        self.over(axes, iteration, starts)

    def store_all(self, stores: Sequence[Store]) -> None:
        """Store for each copy; all values are computed before the first store."""
        ready = list[Value]()
        for _ in self.each_copy():
            ready += [self._ready(store) for store in stores]
        values = iter(ready)
        for _ in self.each_copy():
            for store in stores:
                value = next(values)
                self.store(store, value, value.type.lanes)

    def _ready(self, store: Store) -> Value:
        """The value of a store, with lanes if its place has them."""
        lanes = self.lanes_of(self.body.store_axes(store))
        if store.atomic:
            lanes = self.lanes
        return self.converted(store.value, store.operand.type.dtype, lanes)


def _iterations_at_once(accumulators: int, each: Pass) -> int:
    """How many iterations of a loop have accumulators of their own."""
    if is_large(each):
        return 1
    return max(1, ACCUMULATORS.value // (1 << (accumulators - 1).bit_length()))


def fitting(most: int, lane: Axis, width: int) -> int:
    """How many vectors are in flight along an axis, at most some number."""
    size = lane.iterations
    return min(most, max(1, size // width)) if isinstance(size, int) else most


def _identity(part: Expr, dtype: DType) -> float:
    """The value that changes no result of a reduction."""
    fn = part.extra if part.fn == "reduce" else "sum"
    if fn in ("sum", "prod"):
        return 0 if fn == "sum" else 1
    if dtype.is_float:
        return float("-inf") if fn == "max" else float("inf")
    low, high = (0, 1) if part.dtype is DType.BOOL else integer_limits(dtype)
    return low if fn == "max" else high


def _is_product(part: Expr, dtype: DType) -> bool:
    """True for a sum of products of floats, which are added with one rounding."""
    value = part.args[0]
    return (
        part.fn == "reduce" and part.extra == "sum" and dtype.is_float
        and isinstance(value, Expr) and value.fn == "multiply" and value.dtype is dtype
    )  # fmt: skip
