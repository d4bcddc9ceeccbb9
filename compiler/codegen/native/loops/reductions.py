"""Emits passes: reductions over a loop, and stores in loops.

A reduction keeps one accumulator for each vector in flight. Along lanes, they are combined by
halves at the end: first the vectors, then the lanes of one. The order depends on sizes only, so
that results are the same bits however work is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from compiler.codegen.kernel.analysis import accumulator_type, integer_limits, reduced_loop
from compiler.codegen.kernel.body import Store
from compiler.codegen.native.functions import arithmetic
from compiler.codegen.native.llvm_ir import Value
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import LoopAxis
from compiler.codegen.native.loops.loops import Blocks, Carried, Join, LoopEmitter
from compiler.codegen.native.loops.passes import LoopPass, is_large, loop_lane
from compiler.codegen.native.loops.types import REGISTER, UNSIGNED, literal
from compiler.codegen.native.loops.values import ValueEmitter
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


class Accumulators:
    """Emits the arithmetic of reductions and running sums: their identities, and their steps."""

    def __init__(self, values: ValueEmitter) -> None:
        self.scopes = values.scopes
        self.values = values
        self.f = values.f

    def start(self, part: Expr, lanes: int) -> Value:
        """The identity of a reduction."""
        dtype = accumulator_type(part.dtype)
        return literal(REGISTER[dtype].vector(lanes), _identity(part, dtype))

    def combined(self, part: Expr, total: Value) -> Value:
        """The accumulator with the current iteration's value, unless that is out of bounds."""
        dtype, value, mask = accumulator_type(part.dtype), part.args[0], self.scopes.lanes.mask
        lanes = total.type.lanes
        if _is_product(part, dtype) and mask is None:
            a, b = (self.values.converted(each, dtype, lanes) for each in cast(Expr, value).args)
            return self.f.fma(a, b, total)
        term = self.values.converted(value, dtype, lanes)
        if mask is not None and lanes and part.fn == "reduce":
            term = self.f.select(mask, term, self.start(part, lanes))
        return self.join(part, total, term)

    def join(self, part: Expr, a: Value, b: Value) -> Value:
        """Two accumulators combined."""
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

    def folded(self, part: Expr, accumulators: Sequence[Value]) -> Value:
        """Accumulators of vectors combined into one number, by halves."""
        own = list(accumulators)
        while len(own) > 1:
            pairs = zip(own[::2], own[1::2], strict=False)
            own = [self.join(part, a, b) for a, b in pairs] + own[len(own) & ~1 :]
        total = own[0]
        while total.type.lanes > 1:
            half = total.type.lanes // 2
            low = self.f.shuffle(total, total, range(half))
            total = self.join(part, low, self.f.shuffle(total, total, range(half, 2 * half)))
        return self.f.extract(total, 0)

    def result(self, part: Expr, total: Value) -> Value:
        """A total in the type of its dtype."""
        element = REGISTER[part.dtype]
        if total.type.element == element.element:
            return total
        if element.bits > 1:
            return self.f.convert("trunc", total, element)
        return arithmetic.is_true(self.f, total)


class PassEmitter:
    """Emits the passes of a kernel."""

    def __init__(
        self, body: Body, passes: Sequence[LoopPass], values: ValueEmitter, loops: LoopEmitter
    ) -> None:
        self.body = body
        self.passes = passes
        self.scopes = values.scopes
        self.values = values
        self.loops = loops
        self.accumulators = Accumulators(values)

    # ---- reductions ----

    def reduce(self, each: LoopPass, parts: Sequence[Expr]) -> None:
        """Emit a pass of reductions; their results are known in the current loop."""
        axes, lane = self._nest(each)
        if lane is None:
            totals = self._in_loops(each, parts, axes)
        else:
            loop, later = reduced_loop(parts[0]), self.passes[self.passes.index(each) + 1 :]
            cached = self.values.row_cache.choose(each, later, lane)
            outer = [axis for axis in axes if axis is not lane]
            totals = self._along_lanes((each, parts), outer, lane, cached)
            self.values.row_cache.complete(cached, loop)
        self._define(parts, totals)

    def _nest(self, each: LoopPass) -> tuple[list[LoopAxis], LoopAxis | None]:
        """The axes of a pass's loops, and the one that its lanes are along."""
        axes = [axis for loop in sorted(each.loops) for axis in self.body.loop_axes(loop)]
        if self.scopes.lanes.axis or not axes:
            return axes, None
        return axes, loop_lane(self.body, each, self.loops.width, self.loops.machine)

    def _define(self, parts: Sequence[Expr], totals: Carried) -> None:
        """Define the results, which are in the order of copies, then of parts."""
        values = iter(totals)
        for _ in self.scopes.each_copy():
            for part in parts:
                result = self.accumulators.result(part, next(values))
                self.scopes.define(part, self.body.axes(part), result)

    def _starts(self, parts: Sequence[Expr]) -> Carried:
        """An accumulator for each copy of some reductions, with the lanes of its result."""
        return [
            self.accumulators.start(part, self.scopes.lanes_of(self.body.axes(part)))
            for _ in self.scopes.copies
            for part in parts
        ]

    def _in_loops(self, each: LoopPass, parts: Sequence[Expr], axes: Sequence[LoopAxis]) -> Carried:
        """Reduce with an accumulator for each copy, or several if there are few."""
        scans = each.scans()
        count = _iterations_at_once(len(self.scopes.copies) * len(parts), each)
        if axes and not scans:
            return self._in_unrolled_loops(parts, axes, count)

        def iteration(carried: Carried) -> Carried:
            values, result = iter(carried), list[Value]()
            for _ in self.scopes.each_copy():
                own = [next(values) for _ in (*parts, *scans)]
                self._run_scans(scans, own[len(parts) :])
                pairs = zip(parts, own, strict=False)
                result += [self.accumulators.combined(part, total) for part, total in pairs]
                result += self._sums(scans)
            return result

        totals = self.loops.over(axes, iteration, self._starts([*parts, *scans]))
        step = len(parts) + len(scans)
        return [v for n in range(0, len(totals), max(step, 1)) for v in totals[n : n + len(parts)]]

    def _in_unrolled_loops(
        self, parts: Sequence[Expr], axes: Sequence[LoopAxis], count: int
    ) -> Carried:
        """Reduce with an accumulator for each copy and for each of `count` iterations.

        Additions do not wait for each other, and sums have smaller rounding errors.
        """
        starts = self._starts(parts)
        size = len(starts)

        def iterations(carried: Carried, count: int) -> Carried:
            result, own = list(carried), 0
            for _ in self.scopes.each_copy():
                for part in parts:
                    result[own] = self.accumulators.combined(part, carried[own])
                    own += 1
            return result

        def join(a: Carried, b: Carried) -> Carried:
            every = [*parts] * (len(a) // len(parts))
            return [self.accumulators.join(*each) for each in zip(every, a, b, strict=True)]

        totals = self.loops.over_copies(axes, count, iterations, starts * count, join)
        groups = [totals[n : n + size] for n in range(0, len(totals), size)]
        while len(groups) > 1:
            groups = [join(a, b) for a, b in zip(groups[::2], groups[1::2], strict=True)]
        return groups[0]

    def _along_lanes(
        self, reduced: tuple[LoopPass, Sequence[Expr]], outer: Sequence[LoopAxis], lane: LoopAxis,
        cached: Sequence[Expr],
    ) -> Carried:  # fmt: skip
        """Reduce along lanes, with an accumulator for each vector in flight."""
        (each, parts), start = reduced, self.accumulators.start
        unroll = fitting(2 if is_large(each) else UNROLLED.value, lane, self.loops.width)
        vectors = [start(p, self.loops.width) for p in parts for _ in range(unroll)]
        singles = [] if self.loops.machine.has_masks else [start(p, 0) for p in parts]

        def iteration(carried: Carried, count: int) -> Carried:
            result = list(carried)
            places = range(count or 1)
            for place, _ in zip(places, self.scopes.each_copy(), strict=True):
                for number, part in enumerate(parts):
                    at = number * unroll + place if count else len(vectors) + number
                    result[at] = self.accumulators.combined(part, carried[at])
                for part in cached:
                    value = self.values.value(part)
                    self.values.row_cache.store(part, value, reduced_loop(parts[0]))
            return result

        def join(a: Carried, b: Carried) -> Carried:
            vectors = [part for part in parts for _ in range(unroll)]
            every = [*vectors, *(parts if singles else ())]
            return [self.accumulators.join(*each) for each in zip(every, a, b, strict=True)]

        blocks = self._blocks_of_lanes(outer, lane, unroll, vectors + singles, join)

        def over_lanes(carried: Carried) -> Carried:
            return self.loops.over_lanes(lane, unroll, iteration, carried, blocks.at(len(outer)))

        totals = self.loops.over(outer, over_lanes, vectors + singles, blocks)
        return [self._total(p, n, totals, unroll, len(vectors)) for n, p in enumerate(parts)]

    def _blocks_of_lanes(
        self, outer: Sequence[LoopAxis], lane: LoopAxis, unroll: int, start: Carried, join: Join
    ) -> Blocks:
        """The blocks of a reduction along lanes, whose loop runs some vectors at a time."""
        size = lane.iterations
        iterations = size // (unroll * self.loops.width) if isinstance(size, int) else size
        return Blocks.of([*(axis.size for axis in outer), iterations], start, join)

    def _total(self, part: Expr, number: int, totals: Carried, unroll: int, vectors: int) -> Value:
        """The total of a reduction's vectors, and of the elements that did not fill one."""
        own = totals[number * unroll : (number + 1) * unroll]
        total, singles = self.accumulators.folded(part, own), totals[vectors:]
        return self.accumulators.join(part, total, singles[number]) if singles else total

    # ---- running sums ----

    def _run_scans(self, scans: Sequence[Expr], sums: Sequence[Value]) -> None:
        """Add the current iteration to running sums."""
        for part, before in zip(scans, sums, strict=True):
            total = self.accumulators.combined(part, before)
            self.scopes.define(part, self.body.axes(part), total)

    def _sums(self, scans: Sequence[Expr]) -> Carried:
        """The running sums after the current iteration."""
        return [self.scopes.defined(part, self.body.axes(part)) for part in scans]

    # ---- stores ----

    def store_in_loops(self, each: LoopPass) -> None:
        """Emit stores inside loops."""
        axes, lane = self._nest(each)
        if lane is None:
            self._store_in_loops(each, axes)
            return

        def iteration(carried: Carried, count: int) -> Carried:
            self.store_all(each.stores)
            return carried

        outer = [axis for axis in axes if axis is not lane]
        unroll = fitting(1 if is_large(each) else 2, lane, self.loops.width)
        self.loops.over(
            outer, lambda carried: self.loops.over_lanes(lane, unroll, iteration, carried), []
        )

    def _store_in_loops(self, each: LoopPass, axes: Sequence[LoopAxis]) -> None:
        scans = each.scans()

        def iteration(carried: Carried) -> Carried:
            values, result = iter(carried), list[Value]()
            for _ in self.scopes.each_copy():
                self._run_scans(scans, [next(values) for _ in scans])
                result += self._sums(scans)
            self.store_all(each.stores)
            return result

        self.loops.over(axes, iteration, self._starts(scans))

    def store_all(self, stores: Sequence[Store]) -> None:
        """Store for each copy; all values are computed before the first store."""
        ready = list[Value]()
        for _ in self.scopes.each_copy():
            ready += [self._stored(store) for store in stores]
        values = iter(ready)
        for _ in self.scopes.each_copy():
            for store in stores:
                value = next(values)
                self.values.memory.store(store, value, value.type.lanes)

    def _stored(self, store: Store) -> Value:
        """The value of a store, with lanes if its place has them."""
        lanes = self.scopes.lanes_of(self.body.store_axes(store))
        if store.atomic:
            lanes = self.scopes.lanes.count
        return self.values.converted(store.value, store.operand.type.dtype, lanes)


def _iterations_at_once(accumulators: int, each: LoopPass) -> int:
    """How many iterations of a loop have accumulators of their own."""
    if is_large(each):
        return 1
    return max(1, ACCUMULATORS.value // (1 << (accumulators - 1).bit_length()))


def fitting(most: int, lane: LoopAxis, width: int) -> int:
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
