"""HTML page of a compilation: its data as JSON, and the script that draws it.

It is one self-contained file. Text from users and models is data, which the script only inserts as
text; a content security policy in the page forbids any other script. The same compilation produces
the same page, except for the element `times`.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from string import Template
from typing import Any

from compiler.ir.dims import evaluate
from compiler.record import OpNote, Stage
from compiler.report.changes import LinePair, RowKind, compare, lines_of
from compiler.report.changes import text as changes_text
from compiler.report.kernel_lines import Kernel
from compiler.report.memory import Bar
from compiler.report.native_code import NativeReport
from compiler.report.roofline import Roofline
from compiler.report.stage_graph import Drawing, Node, draw_stages
from compiler.report.user_lines import Sources
from compiler.support.dataclass import dataclass
from compiler.support.escape import html_text, script_json
from compiler.support.syntax_trees import syntax_tree

_FOLDER = Path(__file__).with_name("page")
_SCRIPTS = (
    "dom", "model", "state", "passes", "cost", "changes", "graph", "draw", "detail", "search",
    "memory", "native", "code", "main",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Contents of a page.

    `facts` are labels and values of the header; `sizes` the values of symbolic sizes; `bars` the
    arena of `arena` bytes; `source` the generated code with its `kernels`; `roofline` the cost of
    every stage, `native` the kernels of native code, both optional.
    """

    title: str
    stages: Sequence[Stage]
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    bars: Sequence[Bar] = ()
    arena: int = 0
    source: str = ""
    kernels: Sequence[Kernel] = ()
    sources: Sources = field(default_factory=Sources)
    roofline: Roofline | None = None
    native: NativeReport | None = None


def html(report: Report) -> str:
    """Return the page as a self-contained HTML document."""
    style = _asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(f"{n}.js") for n in _SCRIPTS) + "})();"
    times = {"passes": [round(stage.milliseconds, 3) for stage in report.stages]}
    return Template(_asset("page.html")).substitute(
        title=html_text(report.title),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=script_json(data(report)),
        times=script_json(times),
    )


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of an inline script or style for the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def data(report: Report) -> dict[str, Any]:
    """Return all that the script draws, as plain values, except times."""
    drawing = draw_stages(report.stages)
    tables = _Tables(report)
    stages = [_stage(tables, report, drawing, index) for index in range(len(report.stages))]
    nodes = [_node(tables, n, p) for n, p in zip(drawing.nodes, drawing.layout.points, strict=True)]
    return {
        "title": report.title,
        "facts": list(report.facts.items()),
        "stages": stages,
        "nodes": nodes,
        "links": _links(tables, drawing),
        "lanes": [[lane, round(a, 3), round(b, 3)] for lane, a, b in drawing.layout.lanes],
        "memory": _memory(tables, report),
        "code": _code(report),
        "cost": None if report.roofline is None else report.roofline.data(),
        "native": None if report.native is None else report.native.data(),
        **tables.rows,
    }


class _Tables:
    """Tables of values, lines and source lines, each stored once and referenced by index."""

    def __init__(self, report: Report) -> None:
        self.rows: dict[str, list[Any]] = {"vars": [], "lines": [], "sources": []}
        self._known: dict[Hashable, int] = {}
        self._sources = report.sources
        self._notes = {label: var for stage in report.stages for label, var in stage.vars.items()}
        self._sizes = report.sizes

    def _number(self, table: str, key: Hashable, row: list[Any]) -> int:
        number = self._known.setdefault((table, key), len(self.rows[table]))
        if number == len(self.rows[table]):
            self.rows[table].append(row)
        return number

    def var(self, label: str) -> int:
        """Return the index of a value."""
        note = self._notes.get(label)
        if note is None:
            return self._number("vars", label, [label, "", None, "temp"])
        nbytes = None if note.nbytes is None else evaluate(note.nbytes, self._sizes)
        return self._number("vars", label, [label, note.type, nbytes, note.role])

    def source(self, where: str) -> int:
        """Return the index of a source line."""
        return self._number("sources", where, [where, self._sources.line(where)])

    def line(self, text: str) -> int:
        """Return the index of a line of a graph."""
        code, where = split(text)
        return self._number("lines", text, [code, self.source(where)])


_BOOKS = r"'(?:op_callstack|op_role_var|op_namescope|op_role|op_device)': "
_KEPT = re.compile(rf"{_BOOKS}(?:\['[^']*'(?:, '[^']*')*\]|\[\]|'[^']*'|[0-9]+)(?:, )?")
_COMMENT = re.compile(
    r"""((?:[^"'/]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|/(?!/))*)(?<=  )//\ (.*)""", re.S
)
"""A line of a graph up to its trailing comment; quoted names and texts may contain `//`."""


def split(line: str) -> tuple[str, str]:
    """Split a line into code and source location, and remove bookkeeping attributes.

    >>> split("  y = relu(x) {'a': 2, 'op_callstack': ['a.py:3'], 'op_role': 1}  // a.py:3")
    ("  y = relu(x) {'a': 2}", 'a.py:3')
    >>> split('(Out="a  // b.py:1") = relu(X=x)  // a.py:3')
    ('(Out="a  // b.py:1") = relu(X=x)', 'a.py:3')
    """
    match = _COMMENT.match(line)
    code, where = (match[1].rstrip(), match[2]) if match is not None else (line, "")
    short = _KEPT.sub("", code).replace(", }", "}").replace(" {}", "")
    return short, where


def _stage(tables: _Tables, report: Report, drawing: Drawing, index: int) -> dict[str, Any]:
    """Return a stage: its numbers, its changes and, if anything differs, its lines and ops."""
    stage, before = report.stages[index], report.stages[max(index - 1, 0)]
    rows = [] if stage is before else compare(lines_of(before), lines_of(stage))
    changed = [row for row in rows if row.change is not RowKind.SAME]
    entry = {
        "name": stage.name,
        "about": stage.about,
        "kernelCount": stage.kernels,
        "bytes": evaluate(stage.nbytes, report.sizes),
        "missed": _missed(tables, drawing, stage),
        "changes": changes_text(changed),
        "rows": [_row(row) for row in changed],
    }
    if stage is before or changed:
        entry |= _ops(tables, stage, drawing.orders[index])
    return entry


def _row(row: LinePair) -> list[int]:
    return [row.change, *(-1 if index is None else index for index in (row.before, row.after))]


def _missed(tables: _Tables, drawing: Drawing, stage: Stage) -> list[Any]:
    """Return the missed optimisations by reason, each with its ops and their nodes."""
    groups: dict[str, list[Any]] = {}
    for note in stage.missed:
        node = drawing.node_of(note.outputs)
        groups.setdefault(note.reason, []).append([note.op, tables.source(note.source), node])
    return list(groups.items())


def _ops(tables: _Tables, stage: Stage, order: Sequence[int]) -> dict[str, Any]:
    """Return all lines, and for each op its node, its kernel and the index of its first line."""
    lines = [*stage.head, *(line for op in stage.ops for line in op.lines), *stage.tail]
    return {
        "lines": [tables.line(line) for line in lines],
        "nodes": list(order),
        "kernels": [-1 if op.kernel is None else op.kernel for op in stage.ops],
        "starts": _starts(len(stage.head), stage.ops),
    }


def _starts(first: int, ops: Iterable[OpNote]) -> list[int]:
    starts: list[int] = []
    for op in ops:
        starts.append(first)
        first += len(op.lines)
    return starts


def _node(tables: _Tables, node: Node, place: tuple[float, float]) -> list[Any]:
    x, y = (round(value, 3) for value in place)
    slots = ([tables.var(label) for label in labels] for labels in (node.inputs, node.outputs))
    return [node.kind, x, y, node.lane, *slots, tables.source(node.source)]


def _links(tables: _Tables, drawing: Drawing) -> list[Any]:
    waypoints = drawing.layout.waypoints
    return [
        [
            link.start, link.stop, tables.var(link.label), link.stages, int(link.hub),
            [round(v, 3) for point in waypoints.get((link.start, link.stop), ()) for v in point],
        ]
        for link in drawing.links
    ]  # fmt: skip


def _memory(tables: _Tables, report: Report) -> dict[str, Any] | None:
    if not report.bars:
        return None
    rows = [
        [b.name, b.offset, b.nbytes, b.start, b.stop, [[tables.var(v), s] for v, s in b.holds]]
        for b in report.bars
    ]
    sizes = ", ".join(f"{name} = {number}" for name, number in report.sizes.items())
    return {"arena": report.arena, "sizes": sizes, "bars": rows}


def _code(report: Report) -> dict[str, Any]:
    return {
        "source": report.source,
        "kernels": [[kernel.first, kernel.stop] for kernel in report.kernels],
        "functions": _functions(report.source),
    }


def _functions(source: str) -> list[Any]:
    """Return name and lines of each function that a module defines for its kernels."""
    try:
        functions = [node for node in syntax_tree(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return []
    return [
        [function.name, _first(function) - 1, function.end_lineno]
        for function in functions
        if function.name != "bind"
    ]


def _first(function: ast.FunctionDef) -> int:
    """Return the line where a function begins, including its decorators."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
