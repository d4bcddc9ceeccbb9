"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`.

`explain` says what the passes did when a module was made.

What only a compilation needs is loaded with the first one: networkx alone takes longer to import
than all of fluid. The ops are loaded when one is first looked up: running modules needs none.
"""

from importlib import import_module
from typing import Any

from compiler.codegen.module import Module
from compiler.ir.opdef.lazy_loading import fill_later, load
from compiler.options import Options

__all__ = ["Module", "Options"]


def __getattr__(name: str) -> Any:
    """`compile`, `explain` and `digest`, of `compiler.driver`, `.study` and `.ir.text`; `ops`."""
    if name == "ops":
        return load(lambda: import_module("compiler.ops"))
    if name == "compile":
        return load(lambda: import_module("compiler.driver")).compile
    if name == "explain":
        return load(lambda: import_module("compiler.debugging.explanation")).explain
    if name == "digest":
        return load(lambda: import_module("compiler.ir.text.printer")).digest
    raise AttributeError(f"module 'compiler' has no attribute {name!r}")


fill_later(lambda: import_module("compiler.ops"))
