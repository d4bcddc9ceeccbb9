"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`.

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
    """`compile` and `digest`, from `compiler.driver` and `compiler.ir.text`."""
    if name == "compile":
        return import_module("compiler.driver").compile
    if name == "digest":
        return import_module("compiler.ir.text").digest
    raise AttributeError(f"module 'compiler' has no attribute {name!r}")
