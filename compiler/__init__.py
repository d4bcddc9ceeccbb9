"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`.

`explain` reports what each pass did while a module was compiled. The driver is imported at the
first compilation, and an op at its first lookup: running compiled modules needs neither.

Where to start reading: `driver` (Program to Module), `ir` (programs and graphs), `passes` (rewrites
of a graph), `freeze` and `plan` (the finished schedule), `codegen` (plan to source). `ops` holds
the ops, `pack` the arena allocator, `cost` the cost models, `debugging` and `report` the tools that
show and check a compilation.
"""

from importlib import import_module

from compiler.codegen.module import Module
from compiler.options import Options
from compiler.support.lazy_loading import fill_later, lazy_names

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
fill_later(
    lambda: import_module("compiler.ops").import_all(),
    lambda: import_module("compiler.ops.homes").HOMES,
)
