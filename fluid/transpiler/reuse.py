"""Planning of variable reuse: which variable may take the name of which dead one.

Ops are visited in order. Dead variables go to a pool; a new output takes the first entry of the
pool that fits. Only variables that are written once may move, and only if the other name is not
used again, so that every name holds one value at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import field
from math import prod

from compiler.ir.conversion.reused_names import Reuse, record_reuse, slots_renamed
from compiler.support.dataclass import dataclass
from fluid.framework import Variable
from fluid.transpiler.units import ROLE_VAR, OpAccesses, Unit, is_temporary

__all__ = ["Move", "apply_moves", "planned_moves"]


@dataclass(frozen=True)
class Move:
    """A renaming: from step `at` of a unit, `var` has the name of `storage`.

    `index` is the position of `storage` in a pool of `size`.
    """

    at: int
    var: Variable
    storage: Variable
    index: int
    size: int


def planned_moves(unit: Unit, kept: Collection[str], level: int) -> list[Move]:
    """The moves of one unit, in order; none of `kept` moves or is reused."""
    return list(_Plan(unit, kept, level).moves())


@dataclass
class _Plan:
    """The planning walk: `pool` are the free variables, `storage` the reused ones."""

    unit: Unit
    kept: Collection[str]
    level: int
    pool: list[Variable] = field(default_factory=list[Variable])
    storage: dict[str, Variable] = field(default_factory=dict[str, Variable])

    def moves(self) -> Iterator[Move]:
        steps = self.unit.steps
        write_counts = Counter(n for s in steps for n in s.writes if n not in s.reads)
        fixed = set(self.kept).union(*(step.inside for step in steps))
        for at, step in enumerate(steps):
            for name in dict.fromkeys(step.writes):
                once = (
                    write_counts[name] == 1
                    and self.unit.first[name] == at
                    and name not in step.reads
                )
                if once and name not in fixed and is_temporary(step.block, name):
                    yield from self.move(at, step.block.vars[name])
            self.free(at, step, write_counts)

    def move(self, at: int, var: Variable) -> Iterator[Move]:
        """The move of a variable to the first fitting entry of the pool, if there is one."""
        here = self.unit.steps[at].block.vars
        for index, place in enumerate(self.pool):
            if here.get(place.name) is place and _fits(var, place, self.level):
                self.storage[var.name] = place
                yield Move(at, var, place, index, len(self.pool))
                del self.pool[index]
                return

    def free(self, at: int, step: OpAccesses, made: Collection[str]) -> None:
        """Add the variables that die in a step to the pool, in order of size."""
        ended = [n for n in step.dying if self.unit.last[n] == at and n in made]
        ended = [n for n in ended if n not in self.kept and is_temporary(step.block, n)]
        freed = [self.storage.get(name, step.block.vars[name]) for name in ended]
        for place in sorted(freed, key=lambda each: each.name):
            self.pool.insert(bisect_right(self.pool, _size(place), key=_size), place)


def _size(var: Variable) -> tuple[bool, int]:
    """Sort key of the pool: batch-dependent sizes first, then the number of elements."""
    dims = var.shape
    return dims[0] != -1, abs(prod(dims))


def _fits(var: Variable, place: Variable, level: int) -> bool:
    """Level 0 requires equal shapes; level 1 as many elements, with equal batch dependence."""
    if var.element != place.element:
        return False
    if level == 0:
        return var.dims == place.dims
    return _size(var)[0] == _size(place)[0] and _size(var) <= _size(place)


def apply_moves(unit: Unit, moves: list[Move]) -> None:
    """Rename the moved variables in every op of a unit; the writing op records the old name."""
    names = {move.var.name: move.storage.name for move in moves}
    for step in unit.steps:
        op = step.op
        op.inputs, op.outputs = slots_renamed(op.inputs, names), slots_renamed(op.outputs, names)
        if ROLE_VAR in op.attrs:
            op.attrs[ROLE_VAR] = [names.get(name, name) for name in op.attrs[ROLE_VAR]]
    for move in moves:
        var, step = move.var, unit.steps[move.at]
        declared = (var.dims or (), var.lod_level, var.stop_gradient)
        record_reuse(step.op, Reuse(move.storage.name, var.name, *declared))
        del step.block.vars[var.name]
        move.storage.op = step.op
