"""The passes of a kernel over its axes, and the axis along which each is vectorised.

A pass is a loop nest: all reductions of a level over one loop, or the stores inside some loops. A
kernel either has lanes along an axis of its grid, or each of its passes along one of its loops.
The choice is the least cost by the number of operations, where a load or store of lanes that are
not contiguous counts for each lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from compiler.codegen.kernel.analysis import reduced_loop, reduction_levels, store_roots
from compiler.codegen.kernel.body import Store, number_of
from compiler.codegen.native.loops.body import Axes, Body
from compiler.codegen.native.loops.forms import Form, LoopAxis
from compiler.codegen.native.machine import Machine
from compiler.codegen.trace import ELEMENTWISE, Expr, all_parts
from compiler.ir.dims import Size
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

SIZE_HINT = 64
"""The value of a symbolic size that costs are estimated for."""

ENDED_HINT = 8
"""A likely number of iterations of a loop that data ends, such as the elements of a cell."""

_SIMPLE = frozenset(
    "add subtract multiply negative where less less_equal greater greater_equal equal not_equal "
    "maximum minimum absolute logical_and logical_or logical_not square astype full size".split()
)
_CALL = 8.0
"""The cost of a function such as exp, in additions."""

LARGE = 7.5
"""The cost of an iteration from which on fewer vectors are in flight."""

_FOLD = 12.0
"""The cost of reducing the lanes of a vector."""


def hint(size: Size) -> int:
    """A size, or a likely value of a symbolic one."""
    return size if isinstance(size, int) else SIZE_HINT


def likely_iterations(axis: LoopAxis) -> int:
    """The iterations of an axis, or a likely number of them."""
    return min(hint(axis.iterations), ENDED_HINT) if axis.ends else hint(axis.iterations)


@dataclass(eq=False)
class LoopPass:
    """Reductions over one loop, or stores inside loops, and all expressions they need."""

    reductions: list[Expr]
    stores: list[Store]
    loops: frozenset[int]
    parts: list[Expr]

    def axes(self, body: Body) -> Axes:
        """All axes of the loop nest."""
        axes = body.all_axes(self.parts)
        for store in self.stores:
            axes |= body.store_axes(store)
        return axes

    def scans(self) -> list[Expr]:
        """The running sums of its loops."""
        return [part for part in self.parts if part.fn == "scan"]


def passes_of(body: Body) -> list[LoopPass]:
    """The passes of a kernel in order: reductions by level, then stores by their loops."""
    passes: list[LoopPass] = []
    for group in reduction_levels(body.stores):
        roots = [part.args[0] for part in group if isinstance(part.args[0], Expr)]
        passes.append(LoopPass(group, [], frozenset({reduced_loop(group[0])}), _needed(roots)))
    by_loops: dict[frozenset[int], list[Store]] = {}
    for store in body.stores:
        by_loops.setdefault(_loops_of(body, store), []).append(store)
    for loops, stores in by_loops.items():
        passes.append(LoopPass([], stores, loops, _needed(store_roots(stores))))
    return passes


def _needed(roots: Iterable[Expr]) -> list[Expr]:
    """The expressions that roots are computed from in one pass: reductions are known."""
    return all_parts(roots, lambda part: [] if part.fn == "reduce" else part.parts())


def _loops_of(body: Body, store: Store) -> frozenset[int]:
    """The loops inside which a store happens."""
    axes = body.store_axes(store)
    parts = {p for root in store_roots([store]) for p in _needed([root])}
    named = {number_of(p) for p in parts if p.fn == "loop"}
    named |= {reduced_loop(p) for p in parts if p.fn == "scan"}
    return frozenset(n for n in named if not body.loop_axes(n) or axes & {*body.loop_axes(n)})


@dataclass
class LaneChoice:
    """The lanes of a kernel: their number, and the axis of the grid that they are along."""

    lanes: int
    axis: LoopAxis | None


def choose_lanes(body: Body, machine: Machine) -> LaneChoice:
    """Choose the lanes of a kernel."""
    lanes = machine.vector_bytes // _lane_bytes(body)
    passes = passes_of(body)
    options = [None, *(axis for axis in body.grid if not _is_excluded(body, axis))]
    costs = [sum(_cost(body, pass_, axis, lanes, machine) for pass_ in passes) for axis in options]
    best = min(range(len(options)), key=lambda n: (costs[n], -n))
    return LaneChoice(lanes, options[best])


def loop_lane(body: Body, each: LoopPass, lanes: int, machine: Machine) -> LoopAxis | None:
    """The loop axis that a pass without lanes along the grid is vectorised along; None for none."""
    options = [None, *_loop_options(body, each)]
    return min(options, key=lambda axis: _lane_cost(body, each, axis, lanes, machine))


def _loop_options(body: Body, each: LoopPass) -> list[LoopAxis]:
    if each.scans():
        return []
    return [axis for loop in sorted(each.loops) for axis in body.loop_axes(loop)]


def _lane_bytes(body: Body) -> int:
    """The bytes of the elements that lanes are made for: the widest that is common."""
    types = {p.dtype for p in body.parts if p.fn not in ("index", "loop", "size", "ravel")}
    types |= {store.operand.type.dtype for store in body.stores}
    widths = {max(dtype.itemsize, 4) if dtype.is_float else dtype.itemsize for dtype in types}
    if not widths - {8}:
        return 8
    return 1 if widths <= {1} else 4


def _is_excluded(body: Body, axis: LoopAxis) -> bool:
    """True for an axis along which lanes would have different loops."""
    return any(axis in body.axes(end) for end in body.ends.values()) or body.numbers_parts(axis)


def _cost(body: Body, each: LoopPass, axis: LoopAxis | None, lanes: int, machine: Machine) -> float:
    """The cost of a pass if the grid's lanes are along an axis."""
    if axis is not None and axis in each.axes(body):
        return _lane_cost(body, each, axis, lanes, machine)
    lane = loop_lane(body, each, lanes, machine)
    return _lane_cost(body, each, lane, lanes, machine)


def _lane_cost(
    body: Body, each: LoopPass, lane: LoopAxis | None, lanes: int, machine: Machine
) -> float:
    """The cost of a pass with lanes along an axis."""
    width = effective_lanes(lane, lanes, machine)
    total = 0.0
    for part in each.parts:
        axes = body.axes(part)
        total += _count(axes, lane, width) * _weight(body, part, lane, lanes)
    for store in each.stores:
        form = body.store_address(store)
        total += _count(body.store_axes(store), lane, width) * _access(body, form, lane, lanes)
    if lane is not None and any(lane in body.loop_axes(loop) for loop in each.loops):
        total += sum(_FOLD * _count(body.axes(part), None, 1) for part in each.reductions)
    return total


def effective_lanes(lane: LoopAxis | None, lanes: int, machine: Machine) -> float:
    """How many iterations of an axis one operation of lanes does, counting its remainder."""
    if lane is None:
        return 1.0
    size = likely_iterations(lane)
    steps = math.ceil(size / lanes) if machine.has_masks else size // lanes + size % lanes
    return max(size, 1) / max(steps, 1)


def _count(axes: Axes, lane: LoopAxis | None, width: float) -> float:
    total = 1.0
    for axis in axes:
        total *= likely_iterations(axis)
    return total / width if lane in axes else total


def _weight(body: Body, part: Expr, lane: LoopAxis | None, lanes: int) -> float:
    if part.fn == "load":
        return _access(body, body.load_address(part), lane, lanes)
    if part.dtype is DType.INT64 and not body.forms.of(part).coefficient(part):
        return 0.1
    return 1.0 if part.fn in _SIMPLE else _CALL


def is_large(each: LoopPass) -> bool:
    """True for a pass with so many instructions that one or two vectors keep a core busy."""
    return sum(_CALL if is_expensive(part) else 0.5 for part in each.parts) > LARGE


def draws_in_pairs(each: LoopPass) -> bool:
    """True for a pass that draws random numbers, two vectors of which share their blocks."""
    return any(part.fn == "uniform" for part in each.parts)


def is_expensive(part: Expr) -> bool:
    """True for functions that cost more than a load."""
    return part.fn not in _SIMPLE and part.fn in ELEMENTWISE and part.fn != "divide"


def _access(body: Body, form: Form, lane: LoopAxis | None, lanes: int) -> float:
    """The cost of a load or store: one for each lane unless they are contiguous."""
    if lane is None or lane not in body.form_axes(form):
        return 1.0
    step = form.coefficient(lane)
    rest = any(isinstance(a, Expr) and lane in body.axes(a) for a, _ in form.terms)
    return 1.0 if step == 1 and not rest else float(lanes)
