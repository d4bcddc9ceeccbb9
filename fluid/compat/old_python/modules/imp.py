"""`imp`, as far as scripts load files by it."""

from __future__ import annotations

import sys
from importlib import reload
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source, module_from_spec, source_from_cache, spec_from_loader
from types import ModuleType

__all__ = [
    "cache_from_source", "load_source", "new_module", "reload", "source_from_cache",
]  # fmt: skip


def load_source(name: str, pathname: str, file: object = None) -> ModuleType:
    """The module that a file of Python makes, under a name."""
    loader = SourceFileLoader(name, pathname)
    spec = spec_from_loader(name, loader, origin=pathname)
    if spec is None:
        raise ImportError(f"{pathname} is no module", name=name)
    module = module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return sys.modules[name]


def new_module(name: str) -> ModuleType:
    """An empty module, which is not among those that are imported.

    >>> new_module("empty").__name__
    'empty'
    """
    return ModuleType(name)
