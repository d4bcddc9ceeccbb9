"""Pillow and PyYAML as scripts of that time call them, mended when a script imports them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType

from fluid.compat.old_python.notices import Notices

__all__ = ["mend_pillow", "mend_yaml"]

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
