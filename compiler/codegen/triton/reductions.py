"""Loops of a kernel, and the reductions that close them.

A loop whose turns fit into one tile is that tile, and what several reductions read of it is loaded
once; a longer one is run through tile by tile, once for all reductions that wait for the same
others, and once more for what is stored in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.trace import Expr, ordered
from compiler.codegen.triton.expressions import (
    Loop,
    held_in,
    limits_of,
    loop_of,
    power_of_two,
    roots_of,
)
from compiler.codegen.triton.spelling import TYPES
from compiler.codegen.triton.values import Values
from compiler.ir.dims import Size
from compiler.ir.types import DType

TILE = 1024
"""Turns of a loop that stand side by side at most."""

FEW = 32
"""Turns side by side of a loop whose end differs from lane to lane."""

WHOLE_LOOP = 4096
"""Turns up to which a loop is one tile."""

_START = {"sum": "0", "prod": "1", "max": 'float("-inf")', "min": 'float("inf")'}
_STEP = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})",
}  # fmt: skip


@dataclass
class Reductions(Values):
    """Writes the loops of a kernel and what is reduced over them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loops = [self._loop(i, size) for i, size in enumerate(self.lanes.loops)]

    def _loop(self, index: int, size: Size) -> Loop:
        ends = index in self.lanes.ends
        whole = isinstance(size, int) and size <= WHOLE_LOOP and not ends
        width = power_of_two(size) if whole and isinstance(size, int) else FEW if ends else TILE
        name = self.names.make(f"r{index}" if index else "r")
        return Loop(size, width, whole, name, self.names.make(f"{name}_live"))

    # ---- reductions ----

    def _levels(self) -> list[list[Expr]]:
        """Reductions that can share a run through their loop, those that others wait for first."""
        depth: dict[Expr, int] = {}
        for part in (part for root in roots_of(self.lanes.stores) for part in ordered(root)):
            below = max((depth[each] for each in part.parts()), default=0)
            depth[part] = below + (part.fn == "reduce")
        found: dict[tuple[int, int], list[Expr]] = {}
        for part in (part for part in depth if part.fn == "reduce"):
            found.setdefault((depth[part], loop_of(part)), []).append(part)
        return [found[key] for key in sorted(found)]

    def _reduce(self, parts: list[Expr]) -> None:
        loop = self.loops[loop_of(parts[0])]
        for part in parts:
            self._hoist(part.args[0], loop_of(part))
        totals = [self._begin(part, loop) for part in parts]
        self._enter(loop, loop_of(parts[0]))
        for part, total in zip(parts, totals, strict=True):
            self._take(part, loop, total)
        self._leave(loop)
        for part, total in zip(parts, totals, strict=True):
            self._close(part, total)

    def _begin(self, part: Expr, loop: Loop) -> str:
        total = self.names.make(f"{part.extra}_{loop.name}")
        if not loop.whole:
            start, kind = self._start(part), TYPES[held_in(part.dtype)]
            self.body.line(f"{total} = tl.full((LANES, {loop.width}), {start}, {kind})")
        return total

    def _take(self, part: Expr, loop: Loop, total: str) -> None:
        """Join the turns of a tile, those that are none left out."""
        value = self._cast(part.args[0], held_in(part.dtype))
        value = f"tl.where({loop.live} & live, {value}, {self._start(part)})"
        if loop.whole:
            self.body.line(f"{total} = {value}")
        else:
            self._need(part)
            self.body.line(f"{total} = {_STEP[str(part.extra)].format(total, value)}")

    def _close(self, part: Expr, total: str) -> None:
        """One number a lane from a tile; NaN wins, as NumPy has it."""
        call = {"sum": "sum", "max": "max", "min": "min"}.get(str(part.extra))
        if call is None:
            self.helpers["times"] = None
            text = f"tl.reduce({total}, 1, times)[:, None]"
        elif call == "sum" or not part.dtype.is_float:
            text = f"tl.{call}({total}, 1)[:, None]"
        else:
            self.helpers[{"max": "larger", "min": "smaller"}[call]] = None
            text = f"tl.reduce({total}, 1, {'larger' if call == 'max' else 'smaller'})[:, None]"
        self.body.line(f"{total} = {text}")
        self.text[part] = total

    def _need(self, part: Expr) -> None:
        if part.extra in ("max", "min"):
            self.helpers[{"max": "larger", "min": "smaller"}[str(part.extra)]] = None

    def _start(self, part: Expr) -> str:
        if part.extra in ("sum", "prod") or part.dtype.is_float:
            return _START[str(part.extra)]
        limits = (0, 1) if part.dtype is DType.BOOL else limits_of(part.dtype)
        return str(limits[0] if part.extra == "max" else limits[1])

    # ---- loops ----

    def _enter(self, loop: Loop, index: int) -> None:
        if loop.whole:
            return
        self.run += 1
        end = stop = self._size(loop.size)
        if index in self.lanes.ends:
            end = self._value(self.lanes.ends[index])
            stop = f"tl.max(tl.where(live, {end}, 0))"
        self.body.line(f"for start in range(0, {stop}, {loop.width}):")
        self.body.depth += 1
        self.body.line(f"{loop.name} = start + tl.arange(0, {loop.width})[None, :]")
        self.body.line(f"{loop.live} = {loop.name} < {end}")
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
