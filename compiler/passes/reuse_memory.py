"""Give every temporary a slot of the arena; let a kernel write over what it is the last to read."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.liveness import kernels, lives, may_take_over
from compiler.passes.base import Context, Fact, Pass


class ReuseMemory(Pass):
    """b = f(a), a not read again  =  b in the memory of a.

    Two vars share a slot only in that case, so a slot is alive without holes and its bytes are one
    size; where slots that never meet in time lie in the arena is arithmetic on their lives, done
    when sizes are known (`compiler.pack`). What only data can size gets no slot. In place is legal
    for pointwise kernels over inputs of the output's full shape, and where an op declares it.
    """

    name = "reuse_memory"
    needs = frozenset({Fact.ORDERED})
    gives = frozenset({Fact.STORED})
    loses = frozenset({Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """One walk over the kernels in order."""
        alive = lives(g)
        slots = 0
        for step, ops in enumerate(kernels(g)):
            dying = _dying(ops, step, alive)
            for op in ops:
                for var in (v for v in op.writes() if v in alive and not v.type.is_open):
                    var.slot = _shared_slot(ops, var, dying, alive)
                    if var.slot is None:
                        var.slot, slots = slots, slots + 1


def _dying(ops: list[Op], step: int, alive: dict[Var, tuple[int, int]]) -> list[Var]:
    """Vars with a slot that these ops are the last to read, and that were made before them."""
    read = dict.fromkeys(var for op in ops for var in op.needs_data() if var in alive)
    return [var for var in read if alive[var][0] < step and alive[var][1] == step + 1]


def _shared_slot(
    ops: list[Op], var: Var, dying: list[Var], alive: dict[Var, tuple[int, int]]
) -> int | None:
    """The slot an output takes over, or None; a slot that is taken over is not dying any more."""
    if var.overwrites is not None and var.overwrites in alive:
        return var.overwrites.slot
    for old in dying:
        fits = old.slot is not None and old.type.nbytes == var.type.nbytes
        if fits and may_take_over(ops, old, var):
            dying.remove(old)
            return old.slot
    return None
