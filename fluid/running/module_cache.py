"""Modules that were compiled before, so that they need not be compiled again.

Tests, notebooks and scripts that make an Executor for every use record equal programs again and
again: this process keeps their modules. A script that is started again records the program that it
recorded before: modules for the CPU are kept on disk, too. Programs are equal where their text is,
with the lines that recorded them. What predictors compute of parameters ahead is kept on disk with
the module, and found where every byte of the parameters is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from compiler.codegen.module import Module
from compiler.ir.opdef import OpDef, find, is_registered, loaded
from compiler.ir.text.program_printer import program_digest, recorded_digest
from compiler.ir.types import Array
from compiler.module_store import ModuleStore, module_key, params_digest
from compiler.options import Options
from fluid.framework import Program
from runtime.sizes import Pattern

__all__ = ["compiled_once", "compiled_over"]

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


def compiled_over(
    options: Options,
    program: Program,
    feed: Pattern,
    fetch: list[str],
    params: MutableMapping[str, Array],
    compile: Callable[[MutableMapping[str, Array]], Module],
) -> Module:
    """The module that `compile` makes over parameters that stay as they are, or that of disk.

    What `compile` adds to the parameters is added to them either way. No op is loaded for a module
    of disk.
    """
    kinds = {op.type for block in program.blocks for op in block.ops}
    store = _store("numpy", [found for kind in kinds if (found := loaded(kind)) is not None])
    if store is None or options.dump is not None or options.passes:
        return compile(params)
    persistable = (var.name for var in program.all_vars() if var.persistable)
    made_of = recorded_digest(program), tuple(feed.items()), tuple(fetch)
    key = module_key("numpy", options, *made_of, params_digest(params, persistable))
    module = store.find(key, options, params)
    if module is None:
        noted = _Noted(params)
        module = compile(noted)
        store.put(key, module, {name: params[name] for name in noted.added})
    return module


class _Noted(MutableMapping[str, Array]):
    """A mapping that notes the names of what is added."""

    def __init__(self, params: MutableMapping[str, Array]) -> None:
        self._params = params
        self.added: dict[str, None] = {}

    def __getitem__(self, name: str) -> Array:
        return self._params[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self._params[name] = array
        self.added[name] = None

    def __delitem__(self, name: str) -> None:
        del self._params[name]
        self.added.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


def _stored(
    target: str,
    options: Options,
    definitions: Iterable[type[OpDef]],
    made_of: tuple[object, ...],
    compile: Callable[[], Module],
) -> Module:
    """The module from disk, or else a new one, which is kept there."""
    store = _store(target, definitions)
    if store is None:
        return compile()
    key = module_key(target, options, *made_of)
    module = store.find(key, options)
    if module is None:
        module = compile()
        store.put(key, module)
    return module


def _store(target: str, definitions: Iterable[type[OpDef]]) -> ModuleStore | None:
    """Where modules are kept: those for NumPy whose ops are all of this package.

    Others depend on more than their programs say.
    """
    own = all(each.__module__.startswith("compiler.") for each in definitions)
    return ModuleStore.from_env() if own and target == "numpy" else None


def _definitions(program: Program) -> frozenset[type[OpDef]]:
    """The classes that define the ops of a program."""
    kinds = {op.type for block in program.blocks for op in block.ops}
    return frozenset(find(kind) for kind in kinds if is_registered(kind))
