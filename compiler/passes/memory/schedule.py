"""Scheduling: an order of the kernels with few live bytes."""

from __future__ import annotations

from typing import Self

from compiler.ir.graph import Graph
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass
from compiler.passes.distribute.overlap import overlapped
from compiler.passes.memory.schedules import Kernels, Order

LARGER = 128
"""Factor on the typical size at which a new schedule must not be worse."""


class Schedule(Pass):
    """Of several schedules, the one with the lowest peak of live bytes.

    Candidates are the original order; a greedy one, which takes the ready kernel that frees most
    and allocates least; the same in reverse from the end; and each with allocations deferred until
    needed. Unknown sizes count as `ctx.typical`. Ties are resolved in this order, and a schedule
    with a higher peak than the original at much larger sizes is discarded: there, activations
    outweigh parameters.

    If all-reduces of gradients overlap with computation, the original order is kept: communication
    starts as early as possible, and is waited for just before the result is read.
    """

    name = "schedule"
    establishes = frozenset({Fact.ORDERED})
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def __init__(self, search: bool = True) -> None:
        self.search = search

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Always run, since memory is planned for a fixed schedule; disabled, without a search."""
        return cls(search=cls.name not in options.disable)

    def run(self, g: Graph, ctx: Context) -> None:
        """Compare the peaks; without `search`, keep the original order."""
        is_overlapped = any(op.defn.schedule_early for op in g.ops())
        if not self.search and not is_overlapped:
            g.reorder(g.ops())
            return
        kernels = Kernels(g, ctx.typical)
        if is_overlapped:
            g.reorder(kernels.ops(_overlapped(kernels)))
            return
        g.reorder(kernels.ops(_best(kernels, ctx.typical)))


def _overlapped(kernels: Kernels) -> Order:
    """Return the original order with communication started early and waited for late."""
    early = [any(op.defn.schedule_early for op in ops) for ops in kernels.steps]
    late = [any(op.defn.schedule_late for op in ops) for ops in kernels.steps]
    return overlapped(kernels.original(), kernels.before, early.__getitem__, late.__getitem__)


def _best(kernels: Kernels, typical: int) -> Order:
    """Return the order with the lowest peak that is not worse than the original at large sizes."""
    orders = [kernels.original(), kernels.greedy(), kernels.backward()]
    orders += [kernels.deferred(order) for order in orders]
    peaks = [kernels.peak(order) for order in orders]
    kernels.resize(LARGER * typical)
    limit = kernels.peak(orders[0])
    for _, index in sorted((peak, index) for index, peak in enumerate(peaks)):
        if index == 0 or kernels.peak(orders[index]) <= limit:
            return orders[index]
    return orders[0]


def peak_bytes(g: Graph, typical: int) -> int:
    """Return the peak live bytes of temporaries in the graph's order, with `typical` unknown
    sizes.
    """
    kernels = Kernels(g, typical)
    return kernels.peak(kernels.original())
