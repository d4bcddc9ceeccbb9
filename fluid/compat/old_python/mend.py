"""Puts back what is gone, in this process."""

from __future__ import annotations

import os
import sys
from _collections_abc import Sequence
from importlib import import_module
from importlib._abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from fluid.compat.old_python.names import GONE, with_names
from fluid.compat.old_python.notices import Notices

__all__ = ["MENDERS", "StandIns", "Watcher", "mend", "mend_module"]

MODULES = __file__.rpartition(os.sep)[0] + os.sep + "modules"
MENDERS = {
    "numpy": ("fluid.compat.old_python.numpy_names", "mend_numpy"),
    "PIL.Image": ("fluid.compat.old_python.libraries", "mend_pillow"),
    "yaml": ("fluid.compat.old_python.libraries", "mend_yaml"),
}
"""Modules of others, and the functions that mend them, by the module that has each."""


def mend() -> None:
    """Restore removed names, defaults of libraries and modules; the first use of each is reported.

    Modules that are not imported yet are mended when they are. A name that a script defines itself
    stays what the script made it. Idempotent.
    """
    if any(isinstance(finder, Watcher) for finder in sys.meta_path):
        return
    notices = Notices()
    for name in (*GONE, *MENDERS):
        if name in sys.modules:
            mend_module(sys.modules[name], notices)
    sys.meta_path.insert(0, Watcher(notices))
    sys.meta_path.append(StandIns(notices))


def mend_module(module: ModuleType, notices: Notices) -> None:
    """Mend one module of `GONE` or `MENDERS`."""
    name = module.__name__
    if name in GONE:
        with_names(module, GONE[name], notices)
    else:
        home, function = MENDERS[name]
        getattr(import_module(home), function)(module, notices)


class Watcher:
    """The first import finder: modules of `GONE` and `MENDERS` are mended after they load."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._names = {*GONE, *MENDERS}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that another finder has, its loader followed by mending; None for others."""
        if name not in self._names:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, Watcher))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((candidate for candidate in specs if candidate is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mending(spec, self._notices)
        return spec


class _Mending(Loader):
    """Loads a module as the loader of its spec does, then mends it and restores the loader."""

    def __init__(self, spec: ModuleSpec, notices: Notices) -> None:
        self._spec, self._notices = spec, notices
        self._loader = spec.loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then mend it."""
        assert self._loader is not None
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        mend_module(module, self._notices)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class StandIns:
    """The last import finder: provides `imp` and `distutils`, removed in Python 3.12."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a file of `modules/`; None where there is none for a module."""
        if name.partition(".")[0] not in ("imp", "distutils"):
            return None
        folder = name.rpartition(".")[0].replace(".", os.sep)
        spec = PathFinder.find_spec(name, [f"{MODULES}{os.sep}{folder}"])
        if spec is not None:
            self._notices.tell(f"the module {name}", "Python 3.12", "what fluid has in its place")
        return spec
