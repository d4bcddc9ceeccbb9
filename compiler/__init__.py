"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`.

`explain` says what the passes did when a module was made.

What only a compilation needs is loaded with the first one: networkx alone takes longer to import
than all of fluid.
"""

from importlib import import_module
from typing import Any

import compiler.ops as ops
from compiler.codegen.module import Module
from compiler.options import Options

__all__ = ["Module", "Options", "ops"]


def __getattr__(name: str) -> Any:
    """`compile`, `explain` and `digest`, of `compiler.driver`, `.study` and `.ir.text`."""
    if name == "compile":
        return import_module("compiler.driver").compile
    if name == "explain":
        return import_module("compiler.study").explain
    if name == "digest":
        return import_module("compiler.ir.text").digest
    raise AttributeError(f"module 'compiler' has no attribute {name!r}")
