"""A Python process that a script under `fluid run` started: `import paddle` loads this package.

Loaded at the start of every such process, before anyone knows whether it imports paddle, so it
imports only modules that Python has loaded anyway.
"""

from __future__ import annotations

import os
import sys
from _collections_abc import Sequence
from importlib import import_module
from importlib._abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from fluid.compat.old_python.mend import mend

__all__ = ["PaddleFinder", "PaddleLoader", "install"]

ROOT = __file__.rsplit(os.sep, 4)[0]
"""The folder of the package `fluid`."""
OWN = ("fluid", "fleet")
SHARED = ("compiler", "runtime")
"""Names that packages of others may have: ours only once one of `OWN` is imported."""
PREPARING = "fluid.cli.run"
"""The module that prepares a process; it is above this one, so it is imported by name."""


def install() -> None:
    """Restore removed names, as `fluid run` does, and find `paddle` in this package."""
    mend()
    sys.meta_path.insert(0, PaddleFinder())


class PaddleFinder:
    """The first import finder: finds `paddle`, and the packages that it is made of."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `paddle` or of a package that it imports; None for others."""
        if name == "paddle":
            return ModuleSpec(name, PaddleLoader(), is_package=True)
        if name in OWN or (name in SHARED and any(own in sys.modules for own in OWN)):
            return PathFinder.find_spec(name, [ROOT])
        return None


class PaddleLoader(Loader):
    """Loads `paddle` as `fluid run` does; another `paddle` is an ImportError without --force."""

    def __init__(self) -> None:
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module. Raises ImportError as `fluid.install_as_paddle`, and for foreign modules
        that have the names of ours.
        """
        expect_own_modules()
        import_module(PREPARING).prepare_child()
        module = sys.modules["paddle"]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing but to restore the spec: the module has run."""
        if self._spec is not None:
            module.__spec__, module.__loader__ = self._spec, self._spec.loader


def expect_own_modules() -> None:
    """Raise ImportError if a module with the name of one of our packages is imported already."""
    for name in (*OWN, *SHARED):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not file.startswith(ROOT + os.sep):
            raise ImportError(
                f"paddle cannot be imported after {file}: fluid has a package {name!r} too; "
                "import paddle first",
                name=name,
            )
