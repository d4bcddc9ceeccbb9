"""Puts back what is gone, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from fluid.compat.old_python.libraries import MENDERS, Watcher
from fluid.compat.old_python.names import GONE, Gone
from fluid.compat.old_python.notices import Notices

__all__ = ["StandIns", "mend", "with_names"]

MODULES = Path(__file__).parent / "modules"


def mend() -> None:
    """Restore removed names, defaults of libraries and modules; the first use of each is reported.

    A name that a script defines itself stays what the script made it.
    """
    notices = Notices()
    for module, gone in GONE.items():
        with_names(module, gone, notices)
    for name, mender in MENDERS.items():
        if name in sys.modules:
            mender(sys.modules[name], notices)
    sys.meta_path.insert(0, Watcher(notices))
    sys.meta_path.append(StandIns(notices))


def with_names(module: ModuleType, gone: Mapping[str, Gone], notices: Notices) -> None:
    """Add names to a module that former versions of it had."""
    before: Callable[[str], object] | None = vars(module).get("__getattr__")

    def missing(name: str) -> object:
        entry = gone.get(name)
        if entry is not None:
            notices.tell(f"{module.__name__}.{name}", entry.since, entry.instead)
            return entry.value
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    vars(module)["__getattr__"] = missing


class StandIns(MetaPathFinder):
    """The last import finder: provides `imp` and `distutils`, removed in Python 3.12."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a file of `modules/`; None where there is none for a module."""
        if name.partition(".")[0] not in ("imp", "distutils"):
            return None
        place = MODULES.joinpath(*name.split("."))
        files = (place / "__init__.py", place.with_suffix(".py"))
        file = next((candidate for candidate in files if candidate.is_file()), None)
        if file is None:
            return None
        self._notices.tell(f"the module {name}", "Python 3.12", "what fluid has in its place")
        inner = [str(place)] if file.stem == "__init__" else None
        return spec_from_file_location(name, file, submodule_search_locations=inner)
