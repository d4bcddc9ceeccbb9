"""Choose an order of the kernels in which few bytes are alive at once."""

from __future__ import annotations

from compiler.ir.graph import Graph
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.distribute.overlap import overlapped
from compiler.passes.memory.schedules import Kernels, Order

LARGER = 128
"""How many times larger than typical unknown sizes are where a new order must not be worse."""


class Schedule(Pass):
    """Of several orders, the one with the lowest peak of live bytes.

    Compared are the order as written; a greedy one, which takes, of what is ready, the kernel that
    frees most and makes least; the same from the end backwards; and each with what takes memory
    put off until it is needed. Unknown sizes count as `ctx.typical`. Where peaks are equal the
    earlier one counts, the program's first, and an order that needs more than the program's at far
    larger sizes is none: there activations outweigh parameters.

    Where gradients are summed over ranks while others are computed, the order as written counts:
    what begins communication runs as soon as it can, what waits for it just before the result is
    read.
    """

    name = "schedule"
    establishes = frozenset({Fact.ORDERED})
    invalidates = frozenset({Fact.ORDERED, Fact.STORED})

    def __init__(self, search: bool = True) -> None:
        self.search = search

    def run(self, g: Graph, ctx: Context) -> None:
        """Compare the peaks; without `search`, settle for the order as written."""
        is_overlapped = any(op.defn.starts_early for op in g.ops())
        if not self.search and not is_overlapped:
            g.reorder(g.ops())
            return
        kernels = Kernels(g, ctx.typical)
        if is_overlapped:
            g.reorder(kernels.ops(_overlapped(kernels)))
            return
        g.reorder(kernels.ops(_best(kernels, ctx.typical)))


def _overlapped(kernels: Kernels) -> Order:
    """The order as written, with communication begun early and waited for late."""
    early = [any(op.defn.starts_early for op in ops) for ops in kernels.steps]
    late = [any(op.defn.waits_late for op in ops) for ops in kernels.steps]
    return overlapped(kernels.written(), kernels.before, early.__getitem__, late.__getitem__)


def _best(kernels: Kernels, typical: int) -> Order:
    """The order with the lowest peak that is not worse than the written one at large sizes."""
    orders = [kernels.written(), kernels.greedy(), kernels.backward()]
    orders += [kernels.deferred(order) for order in orders]
    peaks = [kernels.peak(order) for order in orders]
    kernels.resize(LARGER * typical)
    limit = kernels.peak(orders[0])
    for _, index in sorted((peak, index) for index, peak in enumerate(peaks)):
        if index == 0 or kernels.peak(orders[index]) <= limit:
            return orders[index]
    return orders[0]


def peak_bytes(g: Graph, typical: int) -> int:
    """The most bytes of temporaries alive at once in the graph's order, unknown sizes `typical`."""
    kernels = Kernels(g, typical)
    return kernels.peak(kernels.written())
