"""Loops of a kernel, and the reductions that close them.

A loop whose turns a program holds all at once is a tile, and what several reductions read of it is
loaded once; a longer one is run through tile by tile, once for all reductions that wait for the
same others, and once more for what is stored in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.trace import Expr
from compiler.codegen.triton.expressions import Loop, held_in, limits_of, loop_of
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.schedules import form_of
from compiler.codegen.triton.values import Values
from compiler.ir.dims import is_multiple
from compiler.ir.types import DType

_START = {"sum": "0", "prod": "1", "max": 'float("-inf")', "min": 'float("inf")'}
_STEP = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})",
}  # fmt: skip
_JOIN = {"max": "larger", "min": "smaller"}
"""The helpers that join two numbers; NaN wins, as NumPy has it."""

_CLOSE = {
    "prod": ("times", "tl.reduce({0}, {1}, times)"),
    "max": ("largest", "largest({0}, {1})"),
    "min": ("smallest", "smallest({0}, {1})"),
}
"""The helpers that make one number of many, and their calls."""


@dataclass
class Reductions(Values):
    """Writes the loops of a kernel and what is reduced over them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.form = form_of(self.lanes)
        self.column, self.row = "[:, None]", "[None, :]"
        if self.form.across:
            self.column, self.row = self.row, self.column
        self.loops = [self._loop(i) for i in range(len(self.form.turns))]

    def _loop(self, index: int) -> Loop:
        name = self.names.make(f"r{index}" if index else "r")
        live = self.names.make(f"{name}_live")
        size, form = self.lanes.loops[index], self.form
        return Loop(size, form.turns[index], form.whole[index], name, live)

    # ---- reductions ----

    def _reduce(self, parts: list[Expr]) -> None:
        loop = self.loops[loop_of(parts[0])]
        for part in parts:
            self._hoist(part.args[0], loop_of(part))
        totals = [self._begin(part, loop) for part in parts]
        self._enter(loop, loop_of(parts[0]))
        for part, total in zip(parts, totals, strict=True):
            take = self._take_moments if part.extra == "moments" else self._take
            take(part, loop, total)
        self._leave(loop)
        for part, total in zip(parts, totals, strict=True):
            close = self._close_moments if part.extra == "moments" else self._close
            close(part, loop, total)

    def _begin(self, part: Expr, loop: Loop) -> str:
        """Name the total, and start it where it grows tile by tile."""
        total = self.names.make(f"{part.extra}_{loop.name}")
        if part.extra == "moments":
            for each in self._moments(total):
                self._start_tile(each, "0", part, loop)
        else:
            self._start_tile(total, self._start(part), part, loop)
        return total

    def _start_tile(self, name: str, start: str, part: Expr, loop: Loop) -> None:
        if loop.whole:
            return
        shape = f"({loop.width}, LANES)" if self.form.across else f"(LANES, {loop.width})"
        self.body.line(f"{name} = tl.full({shape}, {start}, {TYPES[held_in(part.dtype)]})")

    def _take(self, part: Expr, loop: Loop, total: str) -> None:
        """Join the turns of a tile, those that are none left out."""
        value = self._cast(part.args[0], held_in(part.dtype))
        if part.dtype is DType.INT64:
            value = f"{value}.to(tl.int64)"
        value = f"tl.where({loop.live} & live, {value}, {self._start(part)})"
        if loop.whole:
            self.body.line(f"{total} = {value}")
        else:
            self._need(part)
            self.body.line(f"{total} = {_STEP[str(part.extra)].format(total, value)}")

    def _close(self, part: Expr, loop: Loop, total: str) -> None:
        """One number a lane from a tile."""
        fn, call = str(part.extra), "tl.{fn}({0}, {1})"
        if fn == "prod" or (fn != "sum" and part.dtype.is_float):
            helper, call = _CLOSE[fn]
            self.helpers[helper] = None
        self._total(total, call.format(total, self._axis, fn=fn))
        self.text[part] = total

    def _total(self, name: str, text: str) -> None:
        self.body.line(f"{name} = {text}{self.column}")

    @property
    def _axis(self) -> int:
        """The axis of a tile in which turns lie."""
        return 0 if self.form.across else 1

    def _need(self, part: Expr) -> None:
        if part.extra in _JOIN:
            self.helpers[_JOIN[str(part.extra)]] = None

    def _start(self, part: Expr) -> str:
        if part.extra in ("sum", "prod") or part.dtype.is_float:
            return _START[str(part.extra)]
        limits = (0, 1) if part.dtype is DType.BOOL else limits_of(part.dtype)
        return str(limits[0] if part.extra == "max" else limits[1])

    # ---- what every turn gets of all ----

    def _text(self, part: Expr) -> str:
        match part.fn:
            case "scan":
                return self._scan(part)
            case "order":
                return self._order(part)
            case _:
                return super()._text(part)

    def _scan(self, part: Expr) -> str:
        loop, value = self.loops[loop_of(part)], self._cast(part.args[0], held_in(part.dtype))
        return f"tl.cumsum(tl.where({loop.live} & live, {value}, 0), {self._axis})"

    def _order(self, part: Expr) -> str:
        """Values and turns are sorted as one number of 64 bits."""
        loop, (value, *_) = self.loops[loop_of(part)], part.parts()
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

    # ---- means, and squares around them ----

    def _moments(self, total: str) -> tuple[str, str, str]:
        return f"{total}_count", f"{total}_mean", f"{total}_squares"

    def _take_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """Take a tile into counts, means and squares around means, each turn for itself.

        Reference: Welford, Note on a method for calculating corrected sums, 1962.
        """
        count, mean, squares = self._moments(total)
        value, line = self._value(part.args[0]), self.body.line
        guard = [self._guard(each) for each in part.args[2:]]
        line(f"here = {' & '.join([loop.live, 'live', *guard])}")
        if loop.whole:
            line(f"{count} = here.to({TYPES[part.dtype]})")
            line(f"{mean} = tl.where(here, {value}, 0)")
            return
        line(f"{count} += here.to({TYPES[part.dtype]})")
        line(f"apart = tl.where(here, {value} - {mean}, 0)")
        line(f"{mean} += apart / tl.maximum({count}, 1)")
        line(f"{squares} += apart * tl.where(here, {value} - {mean}, 0)")

    def _close_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """One count, mean and sum of squares a lane from a tile of them.

        Reference: Chan, Golub, LeVeque, Algorithms for computing the sample variance, 1983.
        """
        count, mean, squares = names = self._moments(total)
        line, axis = self.body.line, self._axis
        line(f"whole = tl.sum({count}, {axis}){self.column}")
        line(f"middle = tl.sum({mean} * {count}, {axis}){self.column} / tl.maximum(whole, 1)")
        line(f"apart = {mean} - middle")
        before = "" if loop.whole else f"{squares} + "
        line(f"{squares} = tl.sum({before}{count} * apart * apart, {axis}){self.column}")
        line(f"{count}, {mean} = whole, middle")
        self.text[part] = total
        self.moments[part] = names

    # ---- loops ----

    def _end(self, index: int) -> str:
        """Where the turns of a loop end, which may differ from lane to lane."""
        ends = self.lanes.ends
        return self._value(ends[index]) if index in ends else self._size(self.loops[index].size)

    def _turns(self, index: int, start: str = "") -> None:
        """Name the turns that stand side by side from a start on, and which of them there are."""
        loop = self.loops[index]
        part = self.lanes.part
        first = "" if part is None else "first + "
        own = f"tl.arange(0, {loop.width}){self.row}"
        self.body.line(f"{loop.name} = {first}{start}{own}")
        live = f"{loop.name} < {self._end(index)}"
        if part is not None and not is_multiple(part, loop.width):
            live = f"({live}) & ({loop.name} < first + {self._size(part)})"
        self.body.line(f"{loop.live} = {live}")

    def _enter(self, loop: Loop, index: int) -> None:
        if loop.whole:
            return
        self.run += 1
        stop = self._size(self.lanes.run(index))
        if index in self.lanes.ends:
            stop = f"tl.max(tl.where(live, {self._end(index)}, 0))"
        self.body.line(f"for start in range(0, {stop}, {loop.width}):")
        self.body.depth += 1
        self._turns(index, "start + ")
        self.open = frozenset({index})

    def _leave(self, loop: Loop) -> None:
        """What was named in a loop is not known after it."""
        if loop.whole:
            return
        self.body.depth -= 1
        self.text = {part: text for part, text in self.text.items() if not self._inside(part)}
        self.open = frozenset()

    def _inside(self, part: Expr) -> bool:
        return any(not self.loops[index].whole for index in self.reach[part])
