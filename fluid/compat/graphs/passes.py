"""`core.get_pass` and `core.PassBuilder`: passes that scripts apply to graphs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from compiler.errors import CompileError, did_you_mean
from fluid.compat.descs import ProgramDesc
from fluid.compat.graphs.drawing import write_dot
from fluid.compat.graphs.fc_fusion import fuse_fully_connected
from fluid.compat.graphs.graph import Graph
from fluid.compat.graphs.nodes import Node
from fluid.framework import Program
from fluid.transpiler.norm_fusion import fold_batch_norms
from fluid.transpiler.whole import whole
from runtime.device import CPUPlace
from runtime.tensors.scope import Scope

__all__ = ["Pass", "PassBuilder", "get_pass"]

Options = Mapping[str, object]


def _draw(graph: Graph, options: Options) -> None:
    nodes = sorted(graph.nodes(), key=Node.id)
    write_dot(nodes, (), Path(str(options["graph_viz_path"])))


def _write_program(graph: Graph, options: Options) -> None:
    program = cast(ProgramDesc, options["program"])
    program.parse_from_string(graph.to_program().serialize_to_string())


def _fuse_fully_connected(graph: Graph, options: Options) -> None:
    graph.rewrite(fuse_fully_connected)


def _set_test_mode(graph: Graph, options: Options) -> None:
    graph.rewrite(Program.set_test_mode)


def _fold_batch_norms(graph: Graph, options: Options) -> None:
    scope = cast(Scope, graph.get(_SCOPE))

    def change(program: Program) -> None:
        with whole(program):
            fold_batch_norms(program, CPUPlace(), scope)

    graph.rewrite(change)


_SCOPE = "__param_scope__"
"""The attribute of a graph with the scope that has the values of parameters."""
_PASSES: dict[str, Callable[[Graph, Options], None]] = {
    "conv_bn_fuse_pass": _fold_batch_norms,
    "fc_fuse_pass": _fuse_fully_connected,
    "graph_to_program_pass": _write_program,
    "graph_viz_pass": _draw,
    "is_test_pass": _set_test_mode,
}


class Pass:
    """A pass by name; `set` sets its options before `apply`.

    `fc_fuse_pass` makes `fc` ops, `conv_bn_fuse_pass` folds batch norms into weights, with the
    values in the graph's attribute `__param_scope__`, and `is_test_pass` sets `is_test`.
    `graph_viz_pass` writes a drawing to its option `graph_viz_path`; `graph_to_program_pass`
    replaces the blocks of the description in its option `program`.
    """

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
        """Apply the pass to a graph, in place."""
        _PASSES[self._name](graph, self._options)


class PassBuilder:
    """An ordered list of passes for graphs."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def all_passes(self) -> list[Pass]:
        """The passes in order."""
        return list(self._passes)

    def append_pass(self, pass_type: str) -> Pass:
        """Add a pass at the end and return it; raises as `get_pass`."""
        return self.insert_pass(len(self._passes), pass_type)

    def insert_pass(self, idx: int, pass_type: str) -> Pass:
        """Add a pass before position `idx` and return it; CompileError outside the list."""
        self._passes.insert(self._position(idx, len(self._passes)), added := get_pass(pass_type))
        return added

    def remove_pass(self, idx: int) -> None:
        """Remove the pass at a position; CompileError where there is none."""
        del self._passes[self._position(idx, len(self._passes) - 1)]

    def _position(self, idx: int, last: int) -> int:
        if not 0 <= idx <= last:
            count = len(self._passes)
            raise CompileError(f"position {idx} is outside the list of {count} passes")
        return idx


def get_pass(name: str) -> Pass:
    """A pass by name; NotImplementedError for passes that are not here."""
    if name not in _PASSES:
        hint = did_you_mean(name, _PASSES) or f"there are {', '.join(_PASSES)}"
        raise NotImplementedError(
            f"there is no pass {name!r}; {hint}. Programs are optimised when they are compiled; "
            "passes over compiler graphs are written as docs/cookbook.md shows"
        )
    return Pass(name)
