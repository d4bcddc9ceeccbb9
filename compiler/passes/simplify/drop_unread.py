"""Gradients that nobody reads are not computed."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import GradOp
from compiler.ir.program import GRAD
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.simplify.eliminate_dead import wanted_ops


class DropUnread(Pass):
    """dx, dw = f'(x, w), dx never read  =  dw = f'(x, w).

    Mixed precision casts images, whose gradients nobody wants: the op that reads the gradient of
    the cast is dead, but the first convolution would compute it. Gradient ops accept that a program
    asks for some of their gradients only.
    """

    name = "drop_unread"
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Remove dead ops, then the unread outputs of gradient ops."""
        wanted = wanted_ops(g)
        g.remove(*(op for op in g.ops() if op not in wanted))
        g.reorder([_without(g, op, _unread(g, op)) for op in g.ops()])
        g.sweep()


def _without(g: Graph, op: Op, unread: list[str]) -> Op:
    """An op without some output slots."""
    outputs = {slot: vars for slot, vars in op.outputs.items() if slot not in unread}
    return g.replace(op, op.kind, op.inputs, outputs, op.attrs) if unread else op


def _unread(g: Graph, op: Op) -> list[str]:
    """The output slots of a gradient op that may be dropped."""
    if not isinstance(op.defn, GradOp) or op.body is not None or op.defn.has_effects:
        return []
    slots = op.defn.outputs()
    paired = {slots[slot].of for slot in op.outputs if slots[slot].companion}
    unread = [
        slot for slot, vars in op.outputs.items()
        if slot.endswith(GRAD) and slots[slot].optional and not slots[slot].companion
        and slot not in paired and all(_is_unread(g, var) for var in vars)
    ]  # fmt: skip
    return unread if len(unread) < len(op.outputs) else []


def _is_unread(g: Graph, var: Var) -> bool:
    """Whether a var has no readers, is no result, and shares no memory."""
    alone = var.overwrites is None and g.overwriter(var) is None
    return alone and var.role == "temp" and var not in g.results and not g.readers(var)
