"""What to say of a name that Paddle 1.8 has and this version does not, or that nobody has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from compiler.errors import did_you_mean
from fluid.compat.absent import why_absent


def not_yet(module: str, known: Mapping[str, object]) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module whose AttributeError has a hint or the status of the name.

    >>> not_yet("fluid.layers", {"relu": None})("rellu")
    Traceback (most recent call last):
    AttributeError: fluid.layers has no 'rellu' (yet): did you mean 'relu'?
    >>> not_yet("fluid.layers", {"relu": None})("dynamic_lstm")
    Traceback (most recent call last):
    AttributeError: fluid.layers has no 'dynamic_lstm' (yet): README.md tells what works so far
    """

    def missing(name: str) -> NoReturn:
        if name.startswith("__"):  # tools ask every module for these, and read no hint
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if why := why_absent(f"paddle.{module}.{name}"):
            raise AttributeError(f"{module} has no {name!r}. {why}")
        public = [attribute for attribute in known if not attribute.startswith("_")]
        hint = did_you_mean(name, public) or "README.md tells what works so far"
        raise AttributeError(f"{module} has no {name!r} (yet): {hint}")

    return missing
