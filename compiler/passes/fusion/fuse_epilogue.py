"""Epilogue fusion: pointwise ops on the result of a product join the kernel of the product."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.ir.analysis.liveness import kernels
from compiler.ir.analysis.placement import runs_on_device
from compiler.ir.analysis.verifier import epilogue_shape, fusible_shape
from compiler.ir.graph import Graph, Op, Position, Var
from compiler.passes.base import Context, Fact, Pass
from compiler.support.dataclass import dataclass


@dataclass(eq=False)
class _Kernel:
    """Ops of one kernel, and its position in the schedule, after all its dependencies."""

    ops: list[Op]
    place: Position


class FuseEpilogue(Pass):
    """h = conv(x); z = relu(h + b + r)  =  one kernel that begins with the convolution.

    A pointwise kernel (or a single pointwise op) joins the producer of one of its inputs, its
    anchor, if the anchor accepts an epilogue, computes over the same shape, and its output has no
    other readers: that output is then never stored. On a device it may have readers that run later:
    it is stored then, and the epilogue need not load it. Of several anchors the one that runs last
    is taken.
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
            anchor = self._anchor(g, kernel, kernel_of, ctx)
            if anchor is None:
                continue
            if kernel.ops[0].kernel is None:
                labels += 1
                kernel.ops[0].kernel = labels
            _join(kernel_of[anchor], kernel, kernel_of, _last_dependency(g, kernel, kernel_of))
        order = sorted(dict.fromkeys(kernel_of.values()), key=lambda kernel: kernel.place)
        g.reorder(op for kernel in order for op in kernel.ops)

    def _anchor(
        self, g: Graph, kernel: _Kernel, kernel_of: dict[Op, _Kernel], ctx: Context
    ) -> Op | None:
        """Return the op whose kernel a pointwise kernel joins; None, after reporting why, if there
        is none.
        """
        anchors = dict(_anchors(g, kernel))
        ranked = sorted(anchors, key=lambda op: kernel_of[op].place, reverse=True)
        for anchor in ranked:
            why = _obstacle(g, anchor, anchors[anchor], kernel, kernel_of)
            if not why:
                return anchor
            ctx.note_missed(self.name, anchor, why)
        return None


def _may_follow(op: Op) -> bool:
    """Whether an op is the first of a kernel that may become an epilogue."""
    return op.part is None and fusible_shape(op) is not None


def _anchors(g: Graph, kernel: _Kernel) -> Iterable[tuple[Op, Var]]:
    """Yield ops that accept an epilogue, each with the var by which a kernel reads its result.

    A kernel that reads only its shape, such as zeros like it, does not need the op at all.
    """
    for var in dict.fromkeys(var for op in kernel.ops for var in op.needs_data()):
        producer = g.producer(var)
        if producer is not None and var in producer.outputs.get(
            producer.defn.epilogue_output(producer.target), ()
        ):
            yield producer, var


def _obstacle(
    g: Graph, anchor: Op, result: Var, kernel: _Kernel, kernel_of: dict[Op, _Kernel]
) -> str:
    """Return why a kernel must not join an anchor; empty if it may."""
    if epilogue_shape(anchor) != fusible_shape(kernel.ops[0]):
        return f"{result.label!r} is broadcast to a larger shape"
    members = set(kernel.ops)
    others = [op for op in g.readers(result) if op not in members and result in op.needs_data()]
    is_read = result in g.results or bool(others)
    if g.overwriter(result) is not None or (is_read and not runs_on_device(anchor)):
        return f"{result.label!r} has other readers"
    if anchor.target != kernel.ops[0].target:
        return f"its target is {anchor.target}, that of its readers {kernel.ops[0].target}"
    dependency = _last_dependency(g, kernel, kernel_of)
    for var in anchor.writes():
        if var is not result and not members.isdisjoint(g.readers(var)):
            return f"{var.label!r}, another of its results, is read by the epilogue"
        readers = (kernel_of[op] for op in g.readers(var) if op not in members)
        if any(reader.place < (*dependency, *kernel.place) for reader in readers):
            return f"{var.label!r} is read before the epilogue can run"
    for var in (after for var in anchor.reads() if (after := g.overwriter(var)) is not None):
        writer = g.producer(var)
        waits = writer in members or (writer is not None and kernel_of[writer].place <= dependency)
        if waits and writer is not anchor:
            return f"{var.label!r} overwrites one of its inputs before the epilogue can run"
    return ""


def _last_dependency(g: Graph, kernel: _Kernel, kernel_of: dict[Op, _Kernel]) -> Position:
    """Return the position of the last kernel that a kernel depends on."""
    before = (kernel_of[predecessor] for op in kernel.ops for predecessor in g.predecessors(op))
    return max(predecessor.place for predecessor in before if predecessor is not kernel)


def _join(
    anchor: _Kernel, kernel: _Kernel, kernel_of: dict[Op, _Kernel], dependency: Position
) -> None:
    """Merge an anchor and a kernel at the position after all their dependencies."""
    label = kernel.ops[0].kernel
    kernel.ops = [*anchor.ops, *kernel.ops]
    kernel.place = (*dependency, *kernel.place)
    for op in kernel.ops:
        op.kernel = label
        kernel_of[op] = kernel
