"""Compiler for Paddle 1.x `fluid` programs: `compile` a program into a `Module`, with `Options`."""

import compiler.ops as ops
from compiler.codegen.module import Module
from compiler.driver import compile
from compiler.options import Options

__all__ = ["Module", "Options", "compile", "ops"]
