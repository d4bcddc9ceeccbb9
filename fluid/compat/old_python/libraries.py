"""Pillow and PyYAML as scripts of that time call them, mended when a script imports them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from fluid.compat.old_python.notices import Notices

__all__ = ["MENDERS", "Watcher"]

_FILTERS = {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}


def mend_pillow(image: ModuleType, notices: Notices) -> None:
    """Give `PIL.Image` the names that filters had."""
    before = vars(image).get("__getattr__")

    def missing(name: str) -> object:
        if name in _FILTERS and hasattr(image, _FILTERS[name]):
            notices.tell(f"Image.{name}", "Pillow 10", f"Image.{_FILTERS[name]}")
            return getattr(image, _FILTERS[name])
        if before is not None:
            return before(name)
        raise AttributeError(f"module {image.__name__!r} has no attribute {name!r}")

    vars(image)["__getattr__"] = missing


def mend_yaml(yaml: ModuleType, notices: Notices) -> None:
    """Let `yaml.load` and `yaml.load_all` choose a loader themselves."""
    for name in ("load", "load_all"):
        setattr(yaml, name, _with_loader(yaml, getattr(yaml, name), notices))


def _with_loader(
    yaml: ModuleType, load: Callable[[object, object], object], notices: Notices
) -> Callable[..., object]:
    @wraps(load)
    def loaded(stream: object, Loader: object = None) -> object:
        if Loader is None:
            name: str = getattr(load, "__name__", "")
            what = f"yaml.{name} without a Loader"
            notices.tell(what, "PyYAML 6", "Loader=yaml.FullLoader")
            Loader = getattr(yaml, "FullLoader", yaml.SafeLoader)
        return load(stream, Loader)

    return loaded


MENDERS: dict[str, Callable[[ModuleType, Notices], None]] = {
    "PIL.Image": mend_pillow,
    "yaml": mend_yaml,
}
"""What is done to a module once it is loaded."""


class Watcher(MetaPathFinder):
    """The first import finder: patches the modules of `MENDERS` after they load."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that another finder has, its loader followed by mending; None for others."""
        if name not in MENDERS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((candidate for candidate in specs if candidate is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mending(spec.loader, self._notices)
        return spec


class _Mending(Loader):
    """Loads a module as its loader does, and mends it then."""

    def __init__(self, loader: Loader, notices: Notices) -> None:
        self._loader, self._notices = loader, notices

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then mend it."""
        self._loader.exec_module(module)
        MENDERS[module.__name__](module, self._notices)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)
