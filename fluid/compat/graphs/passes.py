"""`core.get_pass`: the passes of the native library that scripts apply to graphs by name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from fluid.compat.descs import ProgramDesc
from fluid.compat.graphs.drawing import write_dot
from fluid.compat.graphs.graph import Graph
from fluid.compat.graphs.nodes import Node

__all__ = ["Pass", "get_pass"]

_NAMES = ("graph_to_program_pass", "graph_viz_pass")


class Pass:
    """A pass by name; `set` sets its options before `apply`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._options: dict[str, object] = {}

    def type(self) -> str:
        """The name of the pass."""
        return self._name

    def has(self, name: str) -> bool:
        """Whether an option is set."""
        return name in self._options

    def set(self, name: str, value: object) -> None:
        """Set an option."""
        self._options[name] = value

    set_not_owned = set

    def apply(self, graph: Graph) -> None:
        """Apply the pass.

        `graph_viz_pass` writes a drawing to its option `graph_viz_path`; `graph_to_program_pass`
        replaces the blocks of the description in its option `program`.
        """
        if self._name == "graph_viz_pass":
            nodes = sorted(graph.nodes(), key=Node.id)
            write_dot(nodes, (), Path(str(self._options["graph_viz_path"])))
        else:
            program = cast(ProgramDesc, self._options["program"])
            program.parse_from_string(graph.to_program().serialize_to_string())


def get_pass(name: str) -> Pass:
    """A pass by name; NotImplementedError for passes other than the two that `Pass` has."""
    if name not in _NAMES:
        raise NotImplementedError(
            f"there is no pass {name!r}, only {' and '.join(_NAMES)}: passes over compiler graphs "
            "are written as docs/cookbook.md shows"
        )
    return Pass(name)
