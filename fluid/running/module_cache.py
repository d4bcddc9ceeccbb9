"""Modules that were compiled before, so that they need not be compiled again.

Tests, notebooks and scripts that make an Executor for every use record equal programs again and
again: this process keeps their modules. A script that is started again records the program that it
recorded before: modules for the CPU are kept on disk, too. Programs are equal where their text is,
with the lines that recorded them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from compiler.codegen.module import Module
from compiler.ir.opdef import OpDef, find, is_registered
from compiler.ir.text.program_printer import program_digest
from compiler.module_store import ModuleStore, module_key
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
    made_of = program_digest(program), tuple(feed.items()), tuple(fetch)
    definitions = _definitions(program)
    key = (target, options, definitions, *made_of)
    module = _modules.pop(key, None) or _stored(target, options, definitions, made_of, compile)
    _modules[key] = module
    while len(_modules) > KEPT:
        _modules.pop(next(iter(_modules)), None)
    return module


def _stored(
    target: str,
    options: Options,
    definitions: Iterable[type[OpDef]],
    made_of: tuple[object, ...],
    compile: Callable[[], Module],
) -> Module:
    """The module from disk, or else a new one, which is kept there.

    Only modules for NumPy whose ops are all of this package are kept: others depend on more than
    their programs say.
    """
    own = all(each.__module__.startswith("compiler.") for each in definitions)
    store = ModuleStore.from_env() if own and target == "numpy" else None
    if store is None:
        return compile()
    key = module_key(target, options, *made_of)
    module = store.find(key, options)
    if module is None:
        module = compile()
        store.put(key, module)
    return module


def _definitions(program: Program) -> frozenset[type[OpDef]]:
    """The classes that define the ops of a program."""
    kinds = {op.type for block in program.blocks for op in block.ops}
    return frozenset(find(kind) for kind in kinds if is_registered(kind))
