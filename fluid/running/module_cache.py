"""A cache of compiled modules, in memory and on disk.

Tests, notebooks and scripts that create an Executor per use record equal programs repeatedly; their
modules are cached in memory. A restarted script records the same program again: CPU modules are
cached on disk too. Programs are equal if their text is, including the source lines. Parameters that
predictors precompute are cached on disk with the module, keyed by every byte of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from threading import Thread

from compiler.codegen.module import Module
from compiler.codegen.module_store import ModuleStore, module_key, params_digest
from compiler.codegen.native.host import host_machine
from compiler.codegen.packed_params import PREPARES
from compiler.ir.opdef import OpDef, find, is_registered, loaded
from compiler.ir.text.program_printer import program_digest, recorded_digest
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.shared_arrays import SharedArrays
from compiler.support.thresholds import lowered_values
from fluid.framework import Program
from runtime.sizes import Pattern

__all__ = ["compiled_once", "compiled_over"]

KEPT = 32
"""Maximum number of cached modules (LRU). Executors also hold the modules they run."""

_modules: dict[tuple[object, ...], Module] = {}


def compiled_once(
    target: str,
    options: Options,
    program: Program,
    feed: Pattern,
    fetch: list[str],
    compile: Callable[[], Module],
) -> Module:
    """The cached module for an equal program, equal feeds, fetches and options; else compile.

    The cache is not used if stages are dumped, since the files are wanted, or if user passes are
    registered, since they may change. A redefined op changes the key.
    """
    if options.dump is not None or options.passes:
        return compile()
    made_of = program_digest(program), tuple(feed.items()), tuple(fetch)
    definitions = _definitions(program)
    key = (_built_for(target), options, definitions, *made_of)
    module = _modules.pop(key, None) or _stored(target, options, definitions, made_of, compile)
    _modules[key] = module
    while len(_modules) > KEPT:
        _modules.pop(next(iter(_modules)), None)
    return module


def compiled_over(
    target: str,
    options: Options,
    program: Program,
    feed: Pattern,
    fetch: list[str],
    params: MutableMapping[str, Array],
    compile: Callable[[MutableMapping[str, Array]], Module],
) -> Module:
    """Compile over constant parameters, or load the module from disk.

    Parameters that `compile` adds, and the module reads, are added in both cases; those of a module
    from disk are mapped. A module from disk loads no op definitions.
    """
    kinds = {op.type for block in program.blocks for op in block.ops}
    store = _store(target, [constant for kind in kinds if (constant := loaded(kind)) is not None])
    if store is None or options.dump is not None or options.passes:
        return _compile_over(params, compile)[0]
    persistable = (var.name for var in program.all_vars() if var.persistable)
    made_of = recorded_digest(program), tuple(feed.items()), tuple(fetch)
    key = module_key(_built_for(target), options, *made_of, params_digest(params, persistable))
    module = store.find(key, options, params)
    if module is None:
        module, added = _compile_over(params, compile)
        put = partial(_in_background, store.put, key, module, added)
        if PREPARES in module.source:  # it is stored with what the first binding prepares
            return replace(module, prepared=SharedArrays(keep=put))
        put()
        return module
    unfilled = module.prepared.unfilled if module.prepared else {}
    fill = partial(_fill, unfilled, params, compile)
    keep = partial(store.put_prepared, key)
    prepared = SharedArrays(store.prepared(key), keep, unfilled, fill)
    return replace(module, prepared=prepared)


def _fill(
    unfilled: Mapping[str, Array], params: Mapping[str, Array],
    compile: Callable[[MutableMapping[str, Array]], Module],
) -> None:  # fmt: skip
    """Compute the values of arrays that were not stored: those that compiling again adds."""
    if unfilled:
        again = {name: array for name, array in params.items() if name not in unfilled}
        compile(again)
        for name, array in unfilled.items():
            array[...] = again[name]


def _in_background(write: Callable[..., object], *arguments: object) -> None:
    """Write files while the program goes on; it ends when they are written."""
    Thread(target=write, args=arguments, name="fluid-store").start()


def _compile_over(
    params: MutableMapping[str, Array], compile: Callable[[MutableMapping[str, Array]], Module]
) -> tuple[Module, dict[str, Array]]:
    """Compile over constant parameters; return the module and the arrays it added to `params`.

    Arrays that passes added, such as folded weights, and that the module does not read are removed.
    """
    recorded = _AddedItems(params)
    module = compile(recorded)
    read = {param.name for param in module.params}
    for name in [name for name in recorded.added if name not in read]:
        del recorded[name]
    return module, {name: params[name] for name in recorded.added}


class _AddedItems(MutableMapping[str, Array]):
    """A mapping that records the names of added items."""

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
    """The module from the disk cache, or a newly compiled one, which is stored there."""
    store = _store(target, definitions)
    if store is None:
        return compile()
    key = module_key(_built_for(target), options, *made_of)
    module = store.find(key, options)
    if module is None:
        module = compile()
        store.put(key, module)
    return module


def _built_for(target: str) -> str:
    """A target with the CPU that its modules are for, and the thresholds that a test lowered."""
    machine = f":{host_machine().name}" if target == "native" else ""
    return f"{target}{machine}{sorted(lowered_values().items()) or ''}"


def _store(target: str, definitions: Iterable[type[OpDef]]) -> ModuleStore | None:
    """The disk cache for modules of the CPU whose ops are all defined in this package, else None.

    Other modules depend on more than the program.
    """
    own = all(definition.__module__.startswith("compiler.") for definition in definitions)
    return ModuleStore.from_env() if own and target != "triton" else None


def _definitions(program: Program) -> frozenset[type[OpDef]]:
    """The classes that define the ops of a program."""
    kinds = {op.type for block in program.blocks for op in block.ops}
    return frozenset(find(kind) for kind in kinds if is_registered(kind))
