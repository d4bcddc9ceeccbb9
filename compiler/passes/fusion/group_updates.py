"""Horizontal fusion: structurally equal parameter updates share one kernel launch
(multi-tensor).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from compiler.ir.analysis.placement import runs_on_device
from compiler.ir.analysis.structural_equality import elements, spread, structure, width
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.program import OpRole
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.fusion.fusion_groups import Unit, Units


class GroupUpdates(Pass):
    """p = p - r * dp; q = q - r * dq  =  one launch, in which a program has a block of p or of q.

    All ops on one parameter, from clipping its gradient to its update, are one part. Parts with
    equal ops, attributes and types, of any sizes, are parts of one kernel, unless one depends on
    another. Gradients therefore live longer, which takes memory: with a memory budget, nothing
    changes.
    """

    name = "group_updates"
    establishes = frozenset({Fact.GROUPED})
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Merge the ops of each parameter, then structurally equal parts, and label them."""
        if ctx.memory_budget is not None:
            return
        units = Units(g)
        mine = [op for op in g.ops() if _belongs(op)]
        for op in mine:
            _join_part(units, op)
        for alike in _alike(g, dict.fromkeys(units.of[op] for op in mine)):
            for launch in (each for each in units.levels(alike) if len(each) > 1):
                units.merge(launch, parts=launch)
        _label(g, units)
        for op in (op for op in g.ops() if runs_on_device(op) and "Grad" in op.inputs):
            if op.part is None and _updates(op):
                ctx.note_missed(self.name, op, _reason(op))


def _belongs(op: Op) -> bool:
    """Whether an op acts on a parameter: initialisation, clipping, regularization, update."""
    if not runs_on_device(op) or elements(op) is None:
        return False
    makes = any(var.role == "param" for var in op.writes())
    return makes or bool(int(op.attrs.get("op_role", 0)) & OpRole.OPTIMIZE)


def _updates(op: Op) -> bool:
    """Whether an op overwrites state."""
    return any(var.role == "param" and var.overwrites is not None for var in op.writes())


def _reason(op: Op) -> str:
    if elements(op) is None:
        return "it does more than go through tensors of one size, element by element"
    return "no other update has its ops, attributes and types"


# ---- parts -------------------------------------------------------------------------------------


def _join_part(units: Units, op: Op) -> None:
    """Merge an op with the parts whose results it reads elementwise.

    Ops that require a global reduction first remain separate.
    """
    own, g = units.of[op], units.graph
    if isinstance(op.defn, Whole):
        return
    makers = [g.producer(var) for var in op.reads() if _goes_on(g, op, var)]
    if _advances(g, op):
        makers += [reader for var in op.reads() for reader in g.readers(var)]
    makers = [each for each in makers if each is not None and _belongs(each)]
    near = dict.fromkeys(units.of[each] for each in makers if not isinstance(each.defn, Whole))
    joined = [*(unit for unit in near if unit is not own), own]
    if len(joined) > 1 and not units.depend(joined):
        units.merge(joined)


def _goes_on(g: Graph, op: Op, var: Var) -> bool:
    """Whether an op reads a var elementwise; for a scalar, whether it is the only reader."""
    if width([op]) != var.type.numel:
        return False
    return var.type.numel != 1 or len(g.readers(var)) == 1


def _advances(g: Graph, op: Op) -> bool:
    """Whether an op updates a scalar that one other op reads, such as powers of beta for the next
    step.
    """
    over = [var.overwrites for var in op.writes()]
    if width([op]) != 1 or over != op.reads():
        return False
    return all(len(g.readers(var)) == 2 and var.type.numel == 1 for var in op.reads())


def _alike(g: Graph, parts: Iterable[Unit]) -> list[list[Unit]]:
    """Group parts by structure; parts of scalars join the first group that matches."""
    found: dict[Hashable, dict[tuple[bool, ...], list[Unit]]] = {}
    for part in sorted(parts, key=lambda part: not spread(part.ops)):
        forms = found.setdefault(structure(g, part.ops), {})
        form = spread(part.ops) or next(iter(forms), ())
        forms.setdefault(form, []).append(part)
    return [alike for forms in found.values() for alike in forms.values()]


def _label(g: Graph, units: Units) -> None:
    """Assign one label per launch and an index per part; ungrouped ops are left to other passes."""
    order = units.in_order()
    for label, unit in enumerate(unit for unit in order if unit.parts):
        for number, part in enumerate(unit.parts):
            for op in part:
                op.kernel, op.part = label, number
    g.reorder(op for unit in order for op in unit.ops)
