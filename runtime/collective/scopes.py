"""The rings of a scope: a startup program makes them, and the programs run in it later use them."""

from __future__ import annotations

from runtime.collective.rings import Rings
from runtime.tensors.scope import Scope


def rings_of(scope: Scope) -> Rings:
    """The rings that are kept with the outermost scope, made at the first call."""
    found: Rings = scope.root.beside.setdefault(Rings, None) or Rings()
    scope.root.beside[Rings] = found
    return found
