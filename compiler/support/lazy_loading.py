"""Lazy imports: modules that are imported at first use, and a registry that some of them fill.

A process that only runs compiled modules, such as a pool worker, never imports the ops; one that
compiles imports those of its program; one that trains alone never imports what connects it to
others. A package that exports names of several modules, most of them rarely used, declares them by
`lazy_names`.

`os.fork` waits until such imports have finished: a child has only the thread that forked, so if
another thread were importing, the child would wait for the import lock forever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import RLock
from typing import Any, NoReturn, TypeVar

from compiler.support.dataclass import dataclass
from compiler.support.fork_delay import delay_forks
from compiler.support.gc_pause import gc_disabled

T = TypeVar("T")


@dataclass(frozen=True)
class _Later:
    """Entries of a registry that are not imported yet: all, or the module of some by key."""

    fill: Callable[[], object]
    homes: Callable[[], Mapping[str, str]]


_LATER: list[_Later] = []
_FILLING = RLock()


def load(imported: Callable[[], T]) -> T:
    """Call `imported`, which imports a module, and return its result; `os.fork` waits for it.

    Imports allocate many objects and keep them: garbage collections would take a tenth of the time.
    """
    with delay_forks(), gc_disabled():
        return imported()


def lazy_names(
    module: str,
    homes: Mapping[str, str],
    otherwise: Callable[[str], NoReturn] | None = None,
    exported: str = "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module whose names are loaded at first use.

    `homes` maps each defining module to its names, separated by spaces; the names of `module`
    itself are its submodules. `otherwise` raises the AttributeError for any other name. `exported`
    are the names, separated by spaces, that `__all__` also has, "*" for all of them: a type checker
    accepts only names that a module defines in a list that is written there.
    """
    home_by_name = {name: home for home, names in homes.items() for name in names.split()}
    if exported:
        names = sorted(home_by_name) if exported == "*" else exported.split()
        vars(sys.modules[module])["__all__"].extend(names)

    def getattr_(name: str) -> Any:
        if name not in home_by_name:
            if otherwise is not None:
                otherwise(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = load(lambda: _named(module, home_by_name[name], name))
        setattr(sys.modules[module], name, value)
        return value

    return getattr_, lambda: sorted({*vars(sys.modules[module]), *home_by_name})


def _named(module: str, home: str, name: str) -> Any:
    """Return a name from its defining module, or a submodule if `home` is `module`."""
    if home == module:
        return import_module(f"{module}.{name}")
    return getattr(import_module(home), name)


def fill_later(fill: Callable[[], object], homes: Callable[[], Mapping[str, str]] = dict) -> None:
    """Register how a registry is filled at the first lookup of an unknown key.

    `homes` maps keys to the modules that register them, so that one of them is enough; `fill`
    imports everything, for keys that it does not list and for iteration.
    """
    _LATER.append(_Later(fill, homes))


def found_later(registry: dict[str, T], key: str) -> bool:
    """Return whether a registry has a key, after importing what defines it; other threads wait."""
    with delay_forks(), _FILLING:
        for home in [later.homes()[key] for later in _LATER if key in later.homes()]:
            _add_missing(registry, lambda home=home: import_module(home))
        return key in registry or key in filled(registry)


def filled(registry: dict[str, T]) -> dict[str, T]:
    """Return the registry after all deferred fills; other threads wait until they are done."""
    with delay_forks(), _FILLING:
        while _LATER:
            later = _LATER.pop()
            try:
                _add_missing(registry, later.fill)
            except BaseException:
                _LATER.append(later)
                raise
    return registry


def _add_missing(registry: dict[str, T], fill: Callable[[], object]) -> None:
    """Add to a registry; what is registered already, perhaps by a user, remains."""
    before = dict(registry)
    try:
        fill()
    finally:
        registry.update(before)
