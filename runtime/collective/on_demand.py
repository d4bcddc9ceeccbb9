"""Lazily created rings of a scope, for the code of modules, most of which have no collectives."""

from __future__ import annotations

import weakref
from typing import Any

from runtime import collective
from runtime.tensors.scope import Scope

__all__ = ["RingsOnDemand"]


class RingsOnDemand:
    """A lazy proxy for `rings_of(scope)`, created when an attribute is first accessed.

    It does not keep the scope alive.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = weakref.proxy(scope)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        rings = getattr(collective.rings_of(self._scope), name)
        setattr(self, name, rings)
        return rings
