"""The rings of a scope for the code of modules, most of which have no collectives and need none."""

from __future__ import annotations

import weakref
from typing import Any

from runtime import collective
from runtime.tensors.scope import Scope

__all__ = ["RingsOnDemand"]


class RingsOnDemand:
    """What `rings_of(scope)` returns, which is called when something is first asked of it.

    It does not keep the scope.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = weakref.proxy(scope)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(collective.rings_of(self._scope), name)
        setattr(self, name, found)
        return found
