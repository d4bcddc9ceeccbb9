"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`.

`explain` says what the passes did when a module was made.

What only a compilation needs is loaded with the first one: networkx alone takes longer to import
than all of fluid. The ops are loaded when one is first looked up: running modules needs none.
"""

from importlib import import_module

from compiler.codegen.module import Module
from compiler.lazy_loading import fill_later, lazy_names
from compiler.options import Options

__all__ = ["Module", "Options"]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "compiler": "ops",
        "compiler.driver": "compile",
        "compiler.debugging.explanation": "explain",
        "compiler.ir.text.printer": "digest",
    },
)
fill_later(lambda: import_module("compiler.ops"))
