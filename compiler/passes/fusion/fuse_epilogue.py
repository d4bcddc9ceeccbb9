"""Epilogue fusion: pointwise ops on the result of a product join the kernel of the product."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compiler.ir.analysis.liveness import kernels
from compiler.ir.analysis.verifier import epilogue_shape, fusible_shape
from compiler.ir.graph import Graph, Op, Position, Var
from compiler.passes.base import Context, Fact, Pass


@dataclass(eq=False)
class _Kernel:
    """Ops of one kernel, and its position in the schedule, after all its dependencies."""

    ops: list[Op]
    place: Position


class FuseEpilogue(Pass):
    """h = conv(x); z = relu(h + b + r)  =  one kernel that begins with the convolution.

    A pointwise kernel (or a single pointwise op) joins the producer of one of its inputs, its
    anchor, if the anchor accepts an epilogue, computes over the same shape, and its output has no
    other readers: that output is then never stored. Of several anchors the one that runs last is
    taken.
    """

    name = "fuse_epilogue"
    establishes = frozenset({Fact.GROUPED})
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the kernels in order; new labels continue the old ones."""
        steps = [_Kernel(ops, (place,)) for place, ops in enumerate(kernels(g))]
        kernel_of = {op: kernel for kernel in steps for op in kernel.ops}
        labels = max((op.kernel for op in kernel_of if op.kernel is not None), default=-1)
        for kernel in [kernel for kernel in steps if _may_follow(kernel.ops[0])]:
            head = self._head(g, kernel, kernel_of, ctx)
            if head is None:
                continue
            if kernel.ops[0].kernel is None:
                labels += 1
                kernel.ops[0].kernel = labels
            _join(kernel_of[head], kernel, kernel_of, _behind(g, kernel, kernel_of))
        order = sorted(dict.fromkeys(kernel_of.values()), key=lambda kernel: kernel.place)
        g.reorder(op for kernel in order for op in kernel.ops)

    def _head(
        self, g: Graph, kernel: _Kernel, kernel_of: dict[Op, _Kernel], ctx: Context
    ) -> Op | None:
        """Return the op whose kernel a pointwise kernel joins; None, after reporting why, if there
        is none.
        """
        heads = dict(_heads(g, kernel))
        ranked = sorted(heads, key=lambda op: kernel_of[op].place, reverse=True)
        for head in ranked:
            why = _refuse(g, head, heads[head], kernel, kernel_of)
            if not why:
                return head
            ctx.note_missed(self.name, head, why)
        return None


def _may_follow(op: Op) -> bool:
    """Whether an op is the first of a kernel that may become an epilogue."""
    return op.part is None and fusible_shape(op) is not None


def _heads(g: Graph, kernel: _Kernel) -> Iterable[tuple[Op, Var]]:
    """Yield ops that accept an epilogue, each with the var by which a kernel reads its result."""
    for var in dict.fromkeys(var for op in kernel.ops for var in op.reads()):
        maker = g.producer(var)
        if maker is not None and var in maker.outputs.get(
            maker.defn.epilogue_output(maker.target), ()
        ):
            yield maker, var


def _refuse(g: Graph, head: Op, made: Var, kernel: _Kernel, kernel_of: dict[Op, _Kernel]) -> str:
    """Return why a kernel must not join an anchor; empty if it may."""
    if epilogue_shape(head) != fusible_shape(kernel.ops[0]):
        return f"{made.label!r} is spread over a larger shape"
    mine = set(kernel.ops)
    others = (op for op in g.readers(made) if op not in mine and made in op.needs_data())
    if made in g.results or g.overwriter(made) is not None or any(others):
        return f"{made.label!r} has other readers"
    if head.target != kernel.ops[0].target:
        return f"it is for {head.target}, what follows for {kernel.ops[0].target}"
    behind = _behind(g, kernel, kernel_of)
    for var in (var for var in head.writes() if var is not made):
        readers = (kernel_of[op] for op in g.readers(var))
        if any(each.place < (*behind, *kernel.place) for each in readers):
            return f"{var.label!r} is read before all is there that follows"
    for var in (after for var in head.reads() if (after := g.overwriter(var)) is not None):
        writer = g.producer(var)
        waits = writer in mine or (writer is not None and kernel_of[writer].place <= behind)
        if waits and writer is not head:
            return f"{var.label!r} is written over what it reads before all is there that follows"
    return ""


def _behind(g: Graph, kernel: _Kernel, kernel_of: dict[Op, _Kernel]) -> Position:
    """Return the position of the last kernel that a kernel depends on."""
    before = (kernel_of[each] for op in kernel.ops for each in g.predecessors(op))
    return max(each.place for each in before if each is not kernel)


def _join(head: _Kernel, kernel: _Kernel, kernel_of: dict[Op, _Kernel], behind: Position) -> None:
    """Merge an anchor and a kernel at the position after all their dependencies."""
    label = kernel.ops[0].kernel
    kernel.ops = [*head.ops, *kernel.ops]
    kernel.place = (*behind, *kernel.place)
    for op in kernel.ops:
        op.kernel = label
        kernel_of[op] = kernel
