"""Passes: rewrites and decisions on a Graph, one a file, run in the order `pipeline` lists.

What a pass of one's own needs is here; docs/cookbook.md shows one. It is loaded when it is asked
for: graphs bring networkx along, which who only wants `passes.norm_folding` need not wait for.
"""

from compiler.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "compiler.passes.base": "Context Fact Pass",
        "compiler.passes.registry": "register_pass",
    },
)
