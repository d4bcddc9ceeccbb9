"""Graphs as Graphviz text. The HTML page about passes is `compiler.report`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.printer import show_op
from compiler.support.escape import dot_string


def dot(g: Graph) -> str:
    """Format a graph as Graphviz text: ops are boxes, vars the edges between them.

    Ellipses are feeds, state, results and updated state. A dashed edge leads from a reader of a var
    to the op that overwrites it; a dotted edge means that only the shape is read.
    """
    lines = [f"digraph {dot_string(g.name)} {{", *_STYLE, *_indented(_Drawing(g, "").lines()), "}"]
    return "\n".join(lines) + "\n"


_STYLE = (
    "  node [shape=box, style=rounded, fontname=monospace, fontsize=10];",
    "  edge [fontname=monospace, fontsize=9, color=gray40];",
)


class _Drawing:
    """The statements for one graph; `prefix` makes node names unique among nested graphs."""

    def __init__(self, g: Graph, prefix: str) -> None:
        self.g = g
        self.prefix = prefix
        self.ids: dict[Op | Var, str] = {op: f"{prefix}op{i}" for i, op in enumerate(g.ops())}
        self.ids |= {var: f"{prefix}var{i}" for i, var in enumerate(g.vars())}

    def lines(self) -> Iterator[str]:
        """Yield nodes, with a cluster for each kernel and body, then edges."""
        kernels: dict[int, list[Op]] = {}
        for op in self.g.ops():
            if op.kernel is None:
                yield from self.node(op)
            else:
                kernels.setdefault(op.kernel, []).append(op)
        for kernel, ops in kernels.items():
            inside = [line for op in ops for line in self.node(op)]
            yield from _cluster(f"{self.prefix}kernel{kernel}", f"kernel {kernel}", inside)
        for var in self.g.vars():
            yield from self.ends(var)
            yield from self.edges(var)

    def node(self, op: Op) -> Iterator[str]:
        """Yield the box of an op, in a cluster with its body if it has one."""
        words = [op.kind, op.target or "", op.source]
        label = dot_string(*filter(None, words))
        box = f"{self.ids[op]} [label={label}, tooltip={dot_string(show_op(op))}];"
        if op.body is None:
            yield box
            return
        inner = _Drawing(op.body, self.ids[op] + "_")
        yield from _cluster(self.ids[op], op.body.name, [box, *inner.lines()])

    def ends(self, var: Var) -> Iterator[str]:
        """Yield the ellipses of a var: as a graph input, as a result or updated state."""
        text = str(var.type)
        if self.g.producer(var) is None:
            label = dot_string(f"{var.role} {var.label}", text)
            yield f"{self.ids[var]} [label={label}, shape=ellipse, style=filled, fillcolor=gray93];"
        for use in self.uses(var):
            label = dot_string(f"{use} {var.label}", text)
            yield f"{self.ids[var]}_{use} [label={label}, shape=ellipse, style=bold];"
            yield f"{self.origin(var)} -> {self.ids[var]}_{use};"

    def uses(self, var: Var) -> list[str]:
        """List how a var is used after the step: "return", "keep"."""
        is_kept = var.role == "param" and var.overwrites is not None and not self.g.overwriter(var)
        return ["return"] * (var in self.g.results) + ["keep"] * is_kept

    def edges(self, var: Var) -> Iterator[str]:
        """Yield an edge to each reader, and one from there to the op that overwrites the var."""
        label = dot_string(var.label, str(var.type))
        later = self.g.overwriter(var)
        writer = self.g.producer(later) if later is not None else None
        for op in self.g.readers(var):
            style = "" if var in op.needs_data() else ", style=dotted"
            yield f"{self.origin(var)} -> {self.ids[op]} [label={label}{style}];"
            if writer is not None and op is not writer:
                yield f"{self.ids[op]} -> {self.ids[writer]} [style=dashed];"

    def origin(self, var: Var) -> str:
        """Return the node that produces a var."""
        return self.ids[self.g.producer(var) or var]


def _cluster(name: str, label: str, inside: list[str]) -> list[str]:
    head = [
        f"subgraph cluster_{name} {{",
        f"  label={dot_string(label)}; color=gray70; fontsize=9;",
    ]
    return [*head, *_indented(inside), "}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]
