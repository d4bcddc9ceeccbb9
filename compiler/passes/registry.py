"""Registry of user-defined passes: a decorator sets the position, `Options(passes=[…])` enables
one.

Registered passes do not run by default: a program is compiled with the passes of its options, so
that a script's pass does not affect other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from compiler.errors import CompileError, did_you_mean
from compiler.passes.base import Pass
from compiler.support.dataclass import dataclass

AnyPass = TypeVar("AnyPass", bound=type[Pass])


@dataclass(frozen=True)
class _Added:
    """A pass and the name of the pass it runs before or after."""

    made: type[Pass]
    anchor: str
    behind: bool


_ADDED: dict[str, _Added] = {}


def register_pass(*, before: str = "", after: str = "") -> Callable[[AnyPass], AnyPass]:
    """Register a class as a pass that runs directly before, or after, the pass of that name.

    Raises ValueError unless exactly one of both is given, or if the class has no name or that of
    another class.
    """
    if bool(before) == bool(after):
        raise ValueError(
            "pass exactly one of before and after: register_pass(before='fuse_pointwise')"
        )

    def register(made: AnyPass) -> AnyPass:
        existing = _ADDED.get(made.name)
        if not made.name:
            raise ValueError(f"pass {made.__name__} has no name")
        if existing is not None and existing.made.__qualname__ != made.__qualname__:
            raise ValueError(
                f"pass {made.name!r} is already registered by {existing.made.__qualname__}"
            )
        _ADDED[made.name] = _Added(made, before or after, bool(after))
        return made

    return register


def registered_names() -> list[str]:
    """Return the names of all registered passes, in order of registration."""
    return list(_ADDED)


def insert_registered(passes: Sequence[type[Pass]], names: Iterable[str]) -> list[type[Pass]]:
    """Insert the registered passes with these names; of two at one position the first one runs
    first.

    Raises CompileError for an unregistered name, or one whose anchor is unknown.
    """
    inserted = list(passes)
    behind: dict[str, int] = {}
    for added in map(_lookup, dict.fromkeys(names)):
        order = [pass_.name for pass_ in inserted]
        if added.anchor not in order:
            hint = did_you_mean(added.anchor, order) or f"known passes: {', '.join(order)}"
            text = f"pass {added.made.name!r} is anchored to unknown pass {added.anchor!r}"
            raise CompileError(text, hint=hint)
        place = order.index(added.anchor)
        if added.behind:
            behind[added.anchor] = behind.get(added.anchor, 0) + 1
            place += behind[added.anchor]
        inserted.insert(place, added.made)
    return inserted


def _lookup(name: str) -> _Added:
    if name not in _ADDED:
        names = ", ".join(_ADDED) or "none"
        hint = did_you_mean(name, _ADDED) or "import the file that registers it first"
        raise CompileError(f"no pass {name!r} is registered; registered: {names}", hint=hint)
    return _ADDED[name]
