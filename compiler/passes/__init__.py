"""Passes: rewrites and decisions on a Graph, one a file, run in the order `pipeline` lists.

What a pass of one's own needs is here; docs/cookbook.md shows one.
"""

from compiler.passes.base import Context, Fact, Pass
from compiler.passes.registry import register_pass

__all__ = ["Context", "Fact", "Pass", "register_pass"]
