"""The bound on memory as the program was written, and as each pass leaves it.

The bound is the most bytes of values alive at one step: below it no packing goes, so what lowers it
is worth more than any packing. Each column adds a pass to those before it; another pass that
lowers the bound gets a line in `STAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler import Options
from compiler.codegen.module import lives_of
from compiler.driver import Compiled
from compiler.ir.analysis.liveness import lives
from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph
from compiler.pack import Life, lower_bound
from compiler.passes.pipeline import pipeline

REORDERS = frozenset({"schedule"})
SHARES = frozenset({"reuse_memory"})

STAGES: Mapping[str, Options] = {
    "fused": Options(disable=REORDERS | SHARES),
    "+ order": Options(disable=SHARES),
    "+ in place": Options(),
    "+ recompute": Options(memory_budget="60%"),
}
"""What to compile with for each column behind the program as it was written."""

WRITTEN = Options(disable=frozenset(each.name for each in pipeline(Options())) - {"eliminate_dead"})
"""All that the results need, in the order and with the memory of the program."""

BOUND_COLUMNS = {"as written": ",d", **dict.fromkeys(STAGES, ",d")}


def bounds(compiled: Callable[[Options], Compiled], sizes: Mapping[str, int]) -> dict[str, int]:
    """The bound in bytes by column; `compiled` compiles a program, `sizes` are of its feeds."""
    stages = {"as written": WRITTEN, **STAGES}
    return {name: _bound(compiled(options), sizes) for name, options in stages.items()}


def _bound(made: Compiled, sizes: Mapping[str, int]) -> int:
    """The largest live sum of values, without the scratch that ops work in besides."""
    alone = [] if made.plan.buffers else values(made.graph, sizes)
    return lower_bound([*lives_of(made.plan.buffers, sizes), *alone])


def values(graph: Graph, sizes: Mapping[str, int]) -> list[Life]:
    """The temporaries of a graph, each in memory of its own; what only data can size counts 0."""
    return [
        Life(start, stop, 0 if var.type.is_open else evaluate(var.type.nbytes, sizes))
        for var, (start, stop) in lives(graph).items()
    ]
