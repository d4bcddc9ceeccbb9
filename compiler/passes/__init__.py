"""Passes: rewrites and analyses of a Graph, one per file, run in the order of `pipeline`.

Exported here is what a user-defined pass requires (docs/cookbook.md shows one), loaded at first
use, since `passes.norm_folding` needs no graphs.

Read `base` (the contract of a pass), `manager` (runs and checks passes), `pipeline` (their order),
then the passes: `simplify` (remove, fold and merge ops), `device` (placement, precision, layout,
RNG keys), `distribute` (bucketed collectives), `fusion` (kernels) and `memory` (schedule,
rematerialisation, buffer reuse). `registry` adds user-defined passes; `observers` and `dump` watch
a pipeline; `state` and `norm_folding` are helpers.
"""

from compiler.support.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "compiler.passes.base": "Context Fact Pass",
        "compiler.passes.registry": "register_pass",
    },
)
