"""Passes: rewrites and decisions on a Graph, one a file, run in the order `pipeline` lists.

What a pass of one's own needs is here; docs/cookbook.md shows one. It is loaded when it is asked
for: graphs bring networkx along, which who only wants `passes.norm_folding` need not wait for.
"""

from importlib import import_module
from typing import Any

from compiler.ir.opdef.lazy_loading import load


def __getattr__(name: str) -> Any:
    """`Context`, `Fact` and `Pass` of `.base`, `register_pass` of `.registry`."""
    if name == "register_pass":
        return load(lambda: import_module("compiler.passes.registry")).register_pass
    if name in ("Context", "Fact", "Pass"):
        return getattr(load(lambda: import_module("compiler.passes.base")), name)
    raise AttributeError(f"module 'compiler.passes' has no attribute {name!r}")
