"""Emits the loops of a kernel, and the reductions over them.

A loop whose iterations fit in one tile (persistent) is loaded once for several reductions; a longer
one is a loop over tiles, with one pass for all reductions at the same level, and another for the
stores inside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.kernel.analysis import accumulator_type, integer_limits, reduced_loop
from compiler.codegen.trace import Expr
from compiler.codegen.triton.expressions import Loop
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.schedules import choose_schedule
from compiler.codegen.triton.values import Values
from compiler.ir.dims import is_multiple
from compiler.ir.types import DType

_IDENTITY = {"sum": "0", "prod": "1", "max": 'float("-inf")', "min": 'float("inf")'}
_COMBINE = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})",
}  # fmt: skip
_COMBINE_HELPERS = {"max": "larger", "min": "smaller"}
"""The helpers that combine two numbers; NaN propagates, as in NumPy."""

_FINAL_REDUCTIONS = {
    "prod": ("times", "tl.reduce({0}, {1}, times)"),
    "max": ("largest", "largest({0}, {1})"),
    "min": ("smallest", "smallest({0}, {1})"),
}
"""The helpers that reduce a tile, and their calls."""


@dataclass
class Reductions(Values):
    """Emits the loops of a kernel and its reductions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.schedule = choose_schedule(self.kernel)
        self.padded = self.schedule.padded
        self.column, self.row = "[:, None]", "[None, :]"
        if self.schedule.across:
            self.column, self.row = self.row, self.column
        self.loops = [self._loop(i) for i in range(len(self.schedule.iterations))]

    def _loop(self, index: int) -> Loop:
        name = self.names.make(f"r{index}" if index else "r")
        live = self.names.make(f"{name}_live")
        size, form = self.kernel.loops[index], self.schedule
        return Loop(size, form.iterations[index], form.persistent[index], name, live)

    # ---- reductions ----

    def _reduce(self, parts: list[Expr]) -> None:
        loop = self.loops[reduced_loop(parts[0])]
        for part in parts:
            self._hoist(part.args[0], reduced_loop(part))
        totals = [self._declare_total(part, loop) for part in parts]
        self._enter(loop, reduced_loop(parts[0]))
        for part, total in zip(parts, totals, strict=True):
            accumulate = self._accumulate_moments if part.extra == "moments" else self._accumulate
            accumulate(part, loop, total)
        self._leave(loop)
        for part, total in zip(parts, totals, strict=True):
            finish = self._finish_moments if part.extra == "moments" else self._finish
            finish(part, loop, total)

    def _declare_total(self, part: Expr, loop: Loop) -> str:
        """Name the total, and initialise its accumulator if the loop is tiled."""
        total = self.names.make(f"{part.extra}_{loop.name}")
        if part.extra == "moments":
            for moment in self._moments(total):
                self._start_tile(moment, "0", part, loop)
        else:
            self._start_tile(total, self._identity(part), part, loop)
        return total

    def _start_tile(self, name: str, start: str, part: Expr, loop: Loop) -> None:
        if loop.persistent:
            return
        shape = f"({loop.width}, LANES)" if self.schedule.across else f"(LANES, {loop.width})"
        self.body.line(f"{name} = tl.full({shape}, {start}, {TYPES[accumulator_type(part.dtype)]})")

    def _accumulate(self, part: Expr, loop: Loop, total: str) -> None:
        """Combine a tile into the total; masked iterations count as the identity."""
        value = self._cast(part.args[0], accumulator_type(part.dtype))
        if part.dtype is DType.INT64:
            value = f"{value}.to(tl.int64)"
        value = f"tl.where({loop.live} & live, {value}, {self._identity(part)})"
        if loop.persistent:
            self.body.line(f"{total} = {value}")
        else:
            self._require_helper(part)
            self.body.line(f"{total} = {_COMBINE[str(part.extra)].format(total, value)}")

    def _finish(self, part: Expr, loop: Loop, total: str) -> None:
        """Reduce the accumulator tile to one number per element."""
        fn, call = str(part.extra), "tl.{fn}({0}, {1})"
        if fn == "prod" or (fn != "sum" and part.dtype.is_float):
            helper, call = _FINAL_REDUCTIONS[fn]
            self.helpers[helper] = None
        self._total(total, call.format(total, self._axis, fn=fn))
        self.text[part] = total

    def _total(self, name: str, text: str) -> None:
        self.body.line(f"{name} = {text}{self.column}")

    @property
    def _axis(self) -> int:
        """The axis of a tile along which iterations are."""
        return 0 if self.schedule.across else 1

    def _require_helper(self, part: Expr) -> None:
        if part.extra in _COMBINE_HELPERS:
            self.helpers[_COMBINE_HELPERS[str(part.extra)]] = None

    def _identity(self, part: Expr) -> str:
        if part.extra in ("sum", "prod") or part.dtype.is_float:
            return _IDENTITY[str(part.extra)]
        limits = (0, 1) if part.dtype is DType.BOOL else integer_limits(part.dtype)
        return str(limits[0] if part.extra == "max" else limits[1])

    # ---- scans and sorts ----

    def _text(self, part: Expr) -> str:
        match part.fn:
            case "scan":
                return self._scan(part)
            case "order":
                return self._order(part)
            case _:
                return super()._text(part)

    def _scan(self, part: Expr) -> str:
        loop, value = (
            self.loops[reduced_loop(part)],
            self._cast(part.args[0], accumulator_type(part.dtype)),
        )
        return f"tl.cumsum(tl.where({loop.live} & live, {value}, 0), {self._axis})"

    def _order(self, part: Expr) -> str:
        """Sort values together with iterations, packed into 64 bits."""
        loop, (value, *_) = self.loops[reduced_loop(part)], part.parts()
        floats = value.dtype.is_float
        text = self._cast(value, DType.FP32 if floats else DType.INT32)
        if floats:
            self.helpers["sortable"] = None
            text = f"sortable({text})"
        key = self.names.make("key")
        self.body.line(f"{key} = {'~' * bool(part.extra)}{text}")
        self.body.line(f"{key} = ({key}.to(tl.int64) << 32) | {loop.name}")
        self.body.line(f"{key} = tl.where({loop.live} & live, {key}, 9223372036854775807)")
        return f"(tl.sort({key}, 1) & 4294967295).to(INDEX)"

    # ---- moments ----

    def _moments(self, total: str) -> tuple[str, str, str]:
        return f"{total}_count", f"{total}_mean", f"{total}_squares"

    def _accumulate_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """Accumulate a tile into counts, means and squared deviations, per tile column.

        Reference: Welford, Note on a method for calculating corrected sums, 1962.
        """
        count, mean, squares = self._moments(total)
        value, line = self._value(part.args[0]), self.body.line
        guard = [self._guard(arg) for arg in part.args[2:]]
        line(f"here = {' & '.join([loop.live, 'live', *guard])}")
        if loop.persistent:
            line(f"{count} = here.to({TYPES[part.dtype]})")
            line(f"{mean} = tl.where(here, {value}, 0)")
            return
        line(f"{count} += here.to({TYPES[part.dtype]})")
        line(f"apart = tl.where(here, {value} - {mean}, 0)")
        line(f"{mean} += apart / tl.maximum({count}, 1)")
        line(f"{squares} += apart * tl.where(here, {value} - {mean}, 0)")

    def _finish_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """Reduce tiles of counts, means and squared deviations to one of each per element.

        Reference: Chan, Golub, LeVeque, Algorithms for computing the sample variance, 1983.
        """
        count, mean, squares = names = self._moments(total)
        line, axis = self.body.line, self._axis
        line(f"whole = tl.sum({count}, {axis}){self.column}")
        line(f"middle = tl.sum({mean} * {count}, {axis}){self.column} / tl.maximum(whole, 1)")
        line(f"apart = {mean} - middle")
        before = "" if loop.persistent else f"{squares} + "
        line(f"{squares} = tl.sum({before}{count} * apart * apart, {axis}){self.column}")
        line(f"{count}, {mean} = whole, middle")
        self.text[part] = total
        self.moments[part] = names

    # ---- loops ----

    def _loop_end(self, index: int) -> str:
        """The end of a loop, which may differ between elements."""
        ends = self.kernel.ends
        return self._value(ends[index]) if index in ends else self._size(self.loops[index].size)

    def _iteration_indices(self, index: int, start: str = "") -> None:
        """Define the iteration indices of a tile from `start`, and their mask."""
        loop = self.loops[index]
        part = self.kernel.split_size
        first = "" if part is None else "first + "
        own = f"tl.arange(0, {loop.width}){self.row}"
        self.body.line(f"{loop.name} = {first}{start}{own}")
        live = f"{loop.name} < {self._loop_end(index)}"
        if part is not None and not is_multiple(part, loop.width):
            live = f"({live}) & ({loop.name} < first + {self._size(part)})"
        self.body.line(f"{loop.live} = {live}")

    def _enter(self, loop: Loop, index: int) -> None:
        if loop.persistent:
            return
        self.loop_pass += 1
        stop = self._size(self.kernel.trip_count(index))
        if index in self.kernel.ends:
            stop = f"tl.max(tl.where(live, {self._loop_end(index)}, 0))"
        self.body.line(f"for start in range(0, {stop}, {loop.width}):")
        self.body.depth += 1
        self._iteration_indices(index, "start + ")
        self.open_loops = frozenset({index})

    def _leave(self, loop: Loop) -> None:
        """End a loop; variables defined in it are unknown after it."""
        if loop.persistent:
            return
        self.body.depth -= 1
        self.text = {part: text for part, text in self.text.items() if not self._inside(part)}
        self.open_loops = frozenset()

    def _inside(self, part: Expr) -> bool:
        return any(not self.loops[index].persistent for index in self.loop_deps[part])
