"""The vars that the names of a block denote at one point of its conversion."""

from __future__ import annotations

from compiler.ir.graph import Graph, Var
from compiler.ir.program import OpDesc


class CurrentVars(dict[str, Var]):
    """The current var of each name of a block.

    `captured` maps the names that the body of a graph op takes from outside to the vars there;
    `deleted` maps names that have no value any more to the ops that deleted them.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self.captured: dict[str, Var] = {}
        self.deleted: dict[str, OpDesc] = {}

    def define(self, name: str, var: Var) -> Var:
        """Set the current var of a name."""
        self.deleted.pop(name, None)
        self[name] = var
        return var

    def capture(self, name: str, var: Var) -> Var:
        """Capture a var of the enclosing graph: declare it as a feed of the body."""
        self.captured[name] = var
        self[name] = self._graph.feed(name, var.type)
        return self[name]

    def inside(self, var: Var) -> Var:
        """Return the captured version of a var of the enclosing graph."""
        name = var.label
        return self[name] if name in self.captured else self.capture(name, var)
