"""Choose an order of the kernels in which few bytes are alive at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.liveness import kernels, lives
from compiler.ir.types import TensorType
from compiler.passes.base import Context, Fact, Pass

LARGER = 128
"""How many times larger than typical unknown sizes are where a new order must not be worse."""


class Schedule(Pass):
    """Of the order as written and a greedy one, keep the one with the lower peak of live bytes.

    The greedy order takes, of what is ready, the kernel that frees most and allocates least.
    Unknown sizes count as `ctx.typical`. Where both peaks are equal the program's order stays, and
    where the greedy one needs more at far larger sizes: there activations outweigh parameters.
    """

    name = "schedule"
    gives = frozenset({Fact.ORDERED})
    loses = frozenset({Fact.ORDERED, Fact.STORED})

    def __init__(self, search: bool = True) -> None:
        self.search = search

    def run(self, g: Graph, ctx: Context) -> None:
        """Compare the peaks of both orders; without `search`, settle for the one as written."""
        written = g.ops()
        g.reorder(written)
        if not self.search:
            return
        typical = (ctx.typical, LARGER * ctx.typical)
        before = [peak_bytes(g, size) for size in typical]
        g.reorder(_greedy(g, ctx.typical))
        after = [peak_bytes(g, size) for size in typical]
        if after[0] >= before[0] or after[1] > before[1]:
            g.reorder(written)


def peak_bytes(g: Graph, typical: int) -> int:
    """The most bytes of temporaries alive at once in the graph's order, unknown sizes `typical`."""
    change: Counter[int] = Counter()
    for var, (start, stop) in lives(g).items():
        size = _bytes(var.type, typical)
        change[start] += size
        change[stop] -= size
    peak = live = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak


def _bytes(type: TensorType, typical: int) -> int:
    size = type.numel * type.dtype.itemsize if type.is_array else type.nbytes
    return evaluate(size, dict.fromkeys(type.names, typical))


@dataclass
class _Unit:
    """A kernel (or a lone op) while orders are made."""

    index: int
    ops: list[Op]
    waits: int = 0
    followers: list[_Unit] = field(default_factory=lambda: list[_Unit]())
    reads: list[Var] = field(default_factory=list[Var])
    made: int = 0


def _greedy(g: Graph, typical: int) -> list[Op]:
    """List scheduling by bytes allocated minus bytes freed, ties in written order."""
    units = _units(g, typical)
    readers = Counter(var for unit in units for var in unit.reads)
    last_of: dict[Var, set[int]] = {}
    for unit in units:
        for var in unit.reads:
            last_of.setdefault(var, set()).add(unit.index)
    kept = set(g.results)

    def cost(unit: _Unit) -> int:
        freed = (var for var in unit.reads if readers[var] == 1 and var not in kept)
        return unit.made - sum(_bytes(var.type, typical) for var in freed)

    ready = [(cost(unit), unit.index) for unit in units if not unit.waits]
    heapq.heapify(ready)
    done: set[int] = set()
    order: list[Op] = []
    while ready:
        paid, index = heapq.heappop(ready)
        unit = units[index]
        if index in done or paid != cost(unit):
            continue
        done.add(index)
        order += unit.ops
        for woken in _finish(unit, units, readers, last_of):
            heapq.heappush(ready, (cost(woken), woken.index))
    return order


def _finish(
    unit: _Unit, units: list[_Unit], readers: Counter[Var], last_of: dict[Var, set[int]]
) -> Iterable[_Unit]:
    """Release what waited for a unit; also the units that became the last reader of a var."""
    woken = list[_Unit]()
    for var in unit.reads:
        readers[var] -= 1
        last_of[var].discard(unit.index)
        if readers[var] == 1:
            woken += [units[i] for i in last_of[var] if not units[i].waits]
    for follower in unit.followers:
        follower.waits -= 1
        woken += [] if follower.waits else [follower]
    return woken


def _units(g: Graph, typical: int) -> list[_Unit]:
    """Kernels with who waits for whom, what each reads, and the bytes it makes."""
    units = [_Unit(index, ops) for index, ops in enumerate(kernels(g))]
    unit_of = {op: unit for unit in units for op in unit.ops}
    stored = lives(g)
    for unit in units:
        before = {id(u): u for op in unit.ops for u in map(unit_of.get, g.predecessors(op)) if u}
        before.pop(id(unit), None)
        unit.waits = len(before)
        for each in before.values():
            each.followers.append(unit)
        made = [var for op in unit.ops for var in op.writes() if var in stored]
        read = dict.fromkeys(var for op in unit.ops for var in op.needs_data() if var in stored)
        unit.made = sum(_bytes(var.type, typical) for var in made)
        unit.reads = [var for var in read if var not in made]
    return units
