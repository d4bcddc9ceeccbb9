"""Horizontal fusion: structurally equal updates and casts of parameters share one kernel launch
(multi-tensor).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Self

from compiler.ir.analysis.placement import runs_on_device
from compiler.ir.analysis.structural_equality import elements, spread, structure, width
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import Pointwise
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.program import OpRole
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass
from compiler.passes.fusion.fusion_groups import FusionGroup, FusionGroups


class GroupUpdates(Pass):
    """p = p - r * dp; q = q - r * dq  =  one launch, in which a program has a block of p or of q.

    All ops on one parameter, from clipping its gradient to its update, are one part. Parts with
    equal ops, attributes and types, of any sizes, are parts of one kernel, unless one depends on
    another. Gradients therefore live longer, which takes memory: with a memory budget, nothing
    changes. So it is with casts of parameters, as mixed precision has them, unless a cast can be
    fused with the only op that reads it.
    """

    name = "group_updates"
    establishes = frozenset({Fact.GROUPED})
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Run on devices only."""
        return super().configure(options, target) if target and target.on_device else None

    def run(self, g: Graph, ctx: Context) -> None:
        """Merge the ops of each parameter, then structurally equal parts, and label them."""
        if ctx.memory_budget is not None:
            return
        groups = FusionGroups(g)
        members = [op for op in g.ops() if _acts_on_parameter(op) or _casts_parameter(g, op)]
        for op in members:
            _join_part(groups, op)
        for equal in _structurally_equal(g, dict.fromkeys(groups.of[op] for op in members)):
            for launch in (level for level in groups.levels(equal) if len(level) > 1):
                groups.merge(launch, parts=launch)
        _label(g, groups)
        for op in (op for op in g.ops() if runs_on_device(op) and "Grad" in op.inputs):
            if op.part is None and _updates(op):
                ctx.note_missed(self.name, op, _reason(op))


def _acts_on_parameter(op: Op) -> bool:
    """Whether an op acts on a parameter: initialisation, clipping, regularization, update."""
    if not runs_on_device(op) or elements(op) is None:
        return False
    makes = any(var.role == "param" for var in op.writes())
    return makes or bool(int(op.attrs.get("op_role", 0)) & OpRole.OPTIMIZE)


def _casts_parameter(g: Graph, op: Op) -> bool:
    """Whether an op is a cast of a parameter that is not fused with the op that reads it."""
    if op.kind != "cast" or not runs_on_device(op) or elements(op) is None:
        return False
    (var,), (cast,) = op.reads(), op.writes()
    readers = g.readers(cast)
    is_fused = len(readers) == 1 and isinstance(readers[0].defn, Pointwise)
    return var.role == "param" and g.producer(var) is None and not is_fused


def _updates(op: Op) -> bool:
    """Whether an op overwrites state."""
    return any(var.role == "param" and var.overwrites is not None for var in op.writes())


def _reason(op: Op) -> str:
    if elements(op) is None:
        return "it is not elementwise over tensors of one size"
    return "no other update has its ops, attributes and types"


# ---- parts -------------------------------------------------------------------------------------


def _join_part(groups: FusionGroups, op: Op) -> None:
    """Merge an op with the parts whose results it reads elementwise.

    Ops that require a global reduction first remain separate.
    """
    own, g = groups.of[op], groups.graph
    if isinstance(op.defn, Whole):
        return
    producers = [g.producer(var) for var in op.reads() if _reads_elementwise(g, op, var)]
    if _updates_scalar(g, op):
        producers += [reader for var in op.reads() for reader in g.readers(var)]
    producers = [
        producer for producer in producers if producer is not None and _acts_on_parameter(producer)
    ]
    near = dict.fromkeys(
        groups.of[producer] for producer in producers if not isinstance(producer.defn, Whole)
    )
    joined = [*(group for group in near if group is not own), own]
    if len(joined) > 1 and not groups.depend(joined):
        groups.merge(joined)


def _reads_elementwise(g: Graph, op: Op, var: Var) -> bool:
    """Whether an op reads a var elementwise; for a scalar, whether it is the only reader."""
    if width([op]) != var.type.numel:
        return False
    return var.type.numel != 1 or len(g.readers(var)) == 1


def _updates_scalar(g: Graph, op: Op) -> bool:
    """Whether an op updates a scalar that one other op reads, such as powers of beta for the next
    step.
    """
    over = [var.overwrites for var in op.writes()]
    if width([op]) != 1 or over != op.reads():
        return False
    return all(len(g.readers(var)) == 2 and var.type.numel == 1 for var in op.reads())


def _structurally_equal(g: Graph, parts: Iterable[FusionGroup]) -> list[list[FusionGroup]]:
    """Group parts by structure; parts of scalars join the first group that matches."""
    by_structure: dict[Hashable, dict[tuple[bool, ...], list[FusionGroup]]] = {}
    for part in sorted(parts, key=lambda part: not spread(part.ops)):
        patterns = by_structure.setdefault(structure(g, part.ops), {})
        pattern = spread(part.ops) or next(iter(patterns), ())
        patterns.setdefault(pattern, []).append(part)
    return [equal for patterns in by_structure.values() for equal in patterns.values()]


def _label(g: Graph, groups: FusionGroups) -> None:
    """Assign one label per launch and an index per part; ungrouped ops are left to other passes."""
    order = groups.in_order()
    for label, group in enumerate(group for group in order if group.parts):
        for number, part in enumerate(group.parts):
            for op in part:
                op.kernel, op.part = label, number
    g.reorder(op for group in order for op in group.ops)
