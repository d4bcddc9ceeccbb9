"""Modules that this process has compiled, so that another Executor need not compile them again.

Tests, notebooks and scripts that make an Executor for every use record equal programs again and
again. Programs are equal where their text is, with the lines that recorded them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import compiler
from compiler.codegen.module import Module
from compiler.ir.opdef import OpDef, find, is_registered
from compiler.options import Options
from fluid.framework import Program
from runtime.sizes import Pattern

__all__ = ["compiled_once"]

KEPT = 32
"""Modules kept; the least recently used goes first. Executors keep those that they run as well."""

_modules: dict[tuple[Any, ...], Module] = {}


def compiled_once(
    target: str,
    options: Options,
    program: Program,
    feed: Pattern,
    fetch: list[str],
    compile: Callable[[], Module],
) -> Module:
    """The module that `compile` made for an equal program, equal feeds, fetches and options.

    Nothing is reused where stages are dumped, because the files are wanted, nor where passes are
    added, which may change. An op that was defined anew is another one.
    """
    if options.dump is not None or options.passes:
        return compile()
    made_of = compiler.digest(program), _definitions(program)
    key = (target, options, *made_of, *feed.items(), *fetch)
    module = _modules.pop(key, None) or compile()
    _modules[key] = module
    while len(_modules) > KEPT:
        _modules.pop(next(iter(_modules)), None)
    return module


def _definitions(program: Program) -> frozenset[type[OpDef]]:
    """The classes that define the ops of a program."""
    kinds = {op.type for block in program.blocks for op in block.ops}
    return frozenset(find(kind) for kind in kinds if is_registered(kind))
