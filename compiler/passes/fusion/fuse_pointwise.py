"""Pointwise fusion: connected pointwise ops share a kernel, so that intermediates are not
stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

import networkx as nx

from compiler.ir.analysis.liveness import kernels, spread_reads
from compiler.ir.analysis.verifier import epilogue_shape, fusible_shape
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Shape
from compiler.passes.base import Context, Fact, Pass
from compiler.support.dataclass import dataclass

LARGEST = 64
"""Maximum ops in one kernel: longer ones are no faster, and unreadable."""

WINDOW = 256
"""Maximum distance in ops from the start of a kernel: forward values must not be delayed to
backward.
"""


@dataclass(eq=False)
class _Kernel:
    """Ops that will share a label: their common shape and the index of the first one.

    Kernels that have a label already have no shape, so that nothing joins them. `missed` is why a
    pointwise op whose result it reads, or that reads its result, is in another kernel.
    """

    shape: Shape | None
    first: int
    ops: list[Op] = field(default_factory=list[Op])
    missed: str = ""


class _Place(NamedTuple):
    """The position of an op, and its predecessors."""

    position: int
    before: list[Op]


class FusePointwise(Pass):
    """b = f(a); c = g(b)  =  one kernel that computes g(f(a)), b on the way.

    An op joins the kernel of one of its producers if both compute over the same shape, and none of
    its other dependencies depends on that kernel: so the kernels remain acyclic. Existing kernels
    do not change. An op that remains alone is reported, unless there are no pointwise ops next to
    it, or it may become an epilogue.
    """

    name = "fuse_pointwise"
    establishes = frozenset({Fact.GROUPED})
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order; kernels of one op get no label."""
        places = {op: _Place(i, g.predecessors(op)) for i, op in enumerate(g.ops())}
        kernel_of: dict[Op, _Kernel] = {}
        for ops in (ops for ops in kernels(g) if ops[0].kernel is not None):
            kernel_of |= dict.fromkeys(ops, _Kernel(None, places[ops[0]].position, ops))
        for op in (op for op in places if op.kernel is None):
            shape = fusible_shape(op)
            kernel_of[op] = _kernel_for(g, op, shape, places, kernel_of)
            kernel_of[op].ops.append(op)
        order = _topological_order(list(dict.fromkeys(kernel_of.values())), places, kernel_of)
        label = max((op.kernel for op in places if op.kernel is not None), default=-1)
        unlabelled = (
            kernel for kernel in order if len(kernel.ops) > 1 and kernel.ops[0].kernel is None
        )
        for number, kernel in enumerate(unlabelled, label + 1):
            for op in kernel.ops:
                op.kernel = number
        g.reorder(op for kernel in order for op in kernel.ops)
        for kernel in (kernel for kernel in order if len(kernel.ops) == 1 and kernel.missed):
            if all(
                epilogue_shape(predecessor) != kernel.shape
                for predecessor in places[kernel.ops[0]].before
            ):
                ctx.note_missed(self.name, kernel.ops[0], kernel.missed)


def _kernel_for(
    g: Graph, op: Op, shape: Shape | None, places: dict[Op, _Place], kernel_of: dict[Op, _Kernel]
) -> _Kernel:
    """Return the latest kernel that an op may join, or a new one."""
    own = _Kernel(shape, places[op].position)
    before = places[op].before if shape is not None else []
    near = {kernel_of[predecessor].first: kernel_of[predecessor] for predecessor in before}
    inputs_from = _inputs_by_kernel(g, op, kernel_of) if near else {}
    joined: _Kernel | None = None
    for _, kernel in sorted(near.items(), reverse=True):
        if kernel.shape is None:
            continue
        inputs = inputs_from.get(kernel, [])
        why = JOINED if joined else _obstacle(op, own, kernel, inputs, places, kernel_of)
        if not why:
            joined = kernel
        elif inputs:
            kernel.missed, own.missed = kernel.missed or why, own.missed or why
    return joined or own


JOINED = "the op that reads it is in the kernel of another input"
"""Why an op and its reader are in different kernels though both could share one."""


def _obstacle(
    op: Op,
    own: _Kernel,
    kernel: _Kernel,
    inputs: Sequence[Var],
    places: dict[Op, _Place],
    kernel_of: dict[Op, _Kernel],
) -> str:
    """Return why an op, alone in its `own` kernel, must not join the kernel that computes its
    `inputs`; empty if it may.
    """
    if kernel.shape != own.shape:
        return "the pointwise ops next to it have other shapes"
    if kernel.ops[0].target != op.target:
        return "the pointwise ops next to it run on another target"
    if len(kernel.ops) >= LARGEST:
        return f"the kernel next to it has {LARGEST} ops, the maximum"
    if places[op].position - kernel.first >= WINDOW:
        return f"the kernel next to it begins {WINDOW} ops or more earlier"
    if inputs and not spread_reads(op).isdisjoint(inputs):
        return "the ops next to it do not read it, or are not read, element by element"
    before = places[op].before
    others = [predecessor for predecessor in before if kernel_of[predecessor] is not kernel]
    if _depends_on(others, kernel, places, kernel_of):
        return "fusing it with the pointwise ops next to it would create a cycle"
    return ""


def _inputs_by_kernel(g: Graph, op: Op, kernel_of: dict[Op, _Kernel]) -> dict[_Kernel, list[Var]]:
    """Return the inputs of an op by the kernel that computes them."""
    inputs: dict[_Kernel, list[Var]] = {}
    for var in op.needs_data():
        maker = g.producer(var)
        if maker is not None:
            inputs.setdefault(kernel_of[maker], []).append(var)
    return inputs


def _depends_on(
    ops: Iterable[Op], on: _Kernel, places: dict[Op, _Place], kernel_of: dict[Op, _Kernel]
) -> bool:
    """Whether one of the ops depends on the kernel `on`, transitively."""
    pending, seen = [kernel_of[op] for op in ops], set[_Kernel]()
    while pending:
        kernel = pending.pop()
        if kernel is on:
            return True
        if kernel in seen or places[kernel.ops[-1]].position < on.first:
            continue
        seen.add(kernel)
        pending += [kernel_of[before] for op in kernel.ops for before in places[op].before]
    return False


def _topological_order(
    kernels: list[_Kernel], places: dict[Op, _Place], kernel_of: dict[Op, _Kernel]
) -> list[_Kernel]:
    """Return the kernels in topological order, as close to the original order as possible."""
    waits: nx.DiGraph[_Kernel] = nx.DiGraph()
    waits.add_nodes_from(kernels)
    for kernel in kernels:
        before = (kernel_of[other] for op in kernel.ops for other in places[op].before)
        waits.add_edges_from(
            (predecessor, kernel) for predecessor in before if predecessor is not kernel
        )
    return list(nx.lexicographical_topological_sort(waits, key=_first_index))


def _first_index(kernel: _Kernel) -> int:
    return kernel.first
