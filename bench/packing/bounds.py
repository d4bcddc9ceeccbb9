"""The memory bound as the program was written, and after each pass.

The bound is the peak bytes of live values, a lower bound of any packing, so lowering it is worth
more than any packing. Each column adds a pass to those before it; another pass that lowers the
bound gets a line in `STAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler import Options
from compiler.codegen.module import buffer_lifetimes
from compiler.driver import Compiled
from compiler.ir.analysis.liveness import lives
from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph
from compiler.pack import Lifetime, lower_bound
from compiler.passes.pipeline import pipeline

REORDERS = frozenset({"schedule"})
SHARES = frozenset({"reuse_memory"})

STAGES: Mapping[str, Options] = {
    "fused": Options(disable=REORDERS | SHARES),
    "+ order": Options(disable=SHARES),
    "+ in place": Options(),
    "+ recompute": Options(memory_budget="60%"),
}
"""Compile options of each column after the program as written."""

WRITTEN = Options(
    disable=frozenset(pass_.name for pass_ in pipeline(Options())) - {"eliminate_dead"}
)
"""Only dead code elimination: order and memory of the program as written."""

BOUND_COLUMNS = {"as written": ",d", **dict.fromkeys(STAGES, ",d")}


def bounds(compiled: Callable[[Options], Compiled], sizes: Mapping[str, int]) -> dict[str, int]:
    """The bound in bytes by column; `compiled` compiles a program, `sizes` are of its feeds."""
    stages = {"as written": WRITTEN, **STAGES}
    return {name: _bound(compiled(options), sizes) for name, options in stages.items()}


def _bound(made: Compiled, sizes: Mapping[str, int]) -> int:
    """The largest live sum of values, without the scratch memory of ops."""
    alone = [] if made.plan.buffers else values(made.graph, sizes)
    return lower_bound([*buffer_lifetimes(made.plan.buffers, sizes), *alone])


def values(graph: Graph, sizes: Mapping[str, int]) -> list[Lifetime]:
    """The temporaries of a graph, unshared; data-dependent sizes count 0."""
    return [
        Lifetime(start, stop, 0 if var.type.is_open else evaluate(var.type.nbytes, sizes))
        for var, (start, stop) in lives(graph).items()
    ]
