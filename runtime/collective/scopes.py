"""The rings of a scope: a startup program creates them, later programs of the scope use them."""

from __future__ import annotations

from runtime.collective.rings import Rings
from runtime.tensors.scope import Scope


def rings_of(scope: Scope) -> Rings:
    """Return the rings stored with the outermost scope, created on the first call."""
    rings: Rings = scope.root.beside.setdefault(Rings, None) or Rings()
    scope.root.beside[Rings] = rings
    return rings
