"""Pictures of graphs: DOT of one graph, and a page that shows what each pass did to it.

The page is one file that needs nothing else: no script, no font, no picture from anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from compiler.ir.chart import Bar, memory_section, size_text
from compiler.ir.diff import Diff
from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text import show_op

__all__ = ["Bar", "Stage", "dot", "html", "size_text"]


@dataclass(frozen=True)
class Stage:
    """What one pass did: the graph's text before and after, and numbers to show beside it.

    `nbytes` are the bytes of temporaries after it, as a number or an expression, if they are known.
    """

    name: str
    before: str
    after: str
    milliseconds: float
    ops_before: int
    ops_after: int
    refusals: tuple[str, ...] = ()
    nbytes: Size | None = None


def dot(g: Graph) -> str:
    """A graph in Graphviz's language: ops are boxes, vars the edges between them.

    Ellipses are feeds and state, and what a run returns and keeps. A dashed edge leads from an op
    to the one that overwrites what it needs; a dotted edge is read for its shape alone.
    """
    lines = [f"digraph {_quoted(g.name)} {{", *_STYLE, *_indented(_Drawing(g, "").lines()), "}"]
    return "\n".join(lines) + "\n"


_STYLE = (
    "  node [shape=box, style=rounded, fontname=monospace, fontsize=10];",
    "  edge [fontname=monospace, fontsize=9, color=gray40];",
)


class _Drawing:
    """The statements for one graph; `prefix` tells its nodes from those of other graphs."""

    def __init__(self, g: Graph, prefix: str) -> None:
        self.g = g
        self.prefix = prefix
        self.ids: dict[Op | Var, str] = {op: f"{prefix}op{i}" for i, op in enumerate(g.ops())}
        self.ids |= {var: f"{prefix}var{i}" for i, var in enumerate(g.vars())}

    def lines(self) -> Iterator[str]:
        """Nodes, with a cluster for each kernel and body, then edges."""
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
        """The box of an op; around it its body, if it has one."""
        words = [op.kind, op.target or "", op.source]
        label = "\n".join(filter(None, words))
        box = f"{self.ids[op]} [label={_quoted(label)}, tooltip={_quoted(show_op(op))}];"
        if op.body is None:
            yield box
            return
        inner = _Drawing(op.body, self.ids[op] + "_")
        yield from _cluster(self.ids[op], op.body.name, [box, *inner.lines()])

    def ends(self, var: Var) -> Iterator[str]:
        """The ellipses of a var: where it comes from outside, and where it goes there."""
        text = f"{var.label}\n{var.type}"
        if self.g.producer(var) is None:
            label = _quoted(f"{var.role} {text}")
            yield f"{self.ids[var]} [label={label}, shape=ellipse, style=filled, fillcolor=gray93];"
        for use in self.uses(var):
            label = _quoted(f"{use} {text}")
            yield f"{self.ids[var]}_{use} [label={label}, shape=ellipse, style=bold];"
            yield f"{self.origin(var)} -> {self.ids[var]}_{use};"

    def uses(self, var: Var) -> list[str]:
        """What becomes of a var when the run is over."""
        kept = var.role == "param" and var.overwrites is not None and not self.g.overwriter(var)
        return ["return"] * (var in self.g.results) + ["keep"] * kept

    def edges(self, var: Var) -> Iterator[str]:
        """An edge to each reader, and one from each to the op that overwrites the var."""
        label = _quoted(f"{var.label}\n{var.type}")
        later = self.g.overwriter(var)
        writer = self.g.producer(later) if later is not None else None
        for op in self.g.readers(var):
            style = "" if var in op.needs_data() else ", style=dotted"
            yield f"{self.origin(var)} -> {self.ids[op]} [label={label}{style}];"
            if writer is not None and op is not writer:
                yield f"{self.ids[op]} -> {self.ids[writer]} [style=dashed];"

    def origin(self, var: Var) -> str:
        """The node a var comes from."""
        return self.ids[self.g.producer(var) or var]


def _cluster(name: str, label: str, inside: list[str]) -> list[str]:
    head = [f"subgraph cluster_{name} {{", f"  label={_quoted(label)}; color=gray70; fontsize=9;"]
    return [*head, *_indented(inside), "}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# ---- the page ----


def html(
    stages: Sequence[Stage],
    *,
    title: str = "Compilation report",
    summary: Mapping[str, str] | None = None,
    bars: Sequence[Bar] = (),
    source: str = "",
) -> str:
    """A page about a pipeline, whole in itself: passes, what each changed, memory, source.

    `summary` are labels and values that stay in sight; `bars` the memory plan with sizes known;
    `source` the generated code. What has nothing to show is left out.
    """
    diffs = [Diff(stage.before.splitlines(), stage.after.splitlines()) for stage in stages]
    sections = {
        "passes": _pass_table(stages, diffs),
        "memory": memory_section(bars),
        "graph": _text_section("graph", "Graph at the end", _last_text(stages)),
        "source": _text_section("source", "Generated source", source),
    }
    shown = {name: text for name, text in sections.items() if text}
    links = "".join(f'<a href="#{name}">{name}</a>' for name in shown)
    body = [shown.pop("passes"), *map(_stage_section, stages, diffs), *shown.values()]
    values = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in (summary or {}).items()
    )
    page = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    return page.substitute(title=escape(title), summary=values, links=links, body="\n".join(body))


def _pass_table(stages: Sequence[Stage], diffs: Sequence[Diff]) -> str:
    heads = ("pass", "ms", "ops", "temporaries", "lines", "refused")
    head = "".join(f'<th scope="col" class="n">{text}</th>' for text in heads)
    longest = max((stage.milliseconds for stage in stages), default=0.0) or 1.0
    rows = [_pass_row(s, d, s.milliseconds / longest) for s, d in zip(stages, diffs, strict=True)]
    table = f'<table class="passes"><tr>{head}</tr>{"".join(rows)}{_total_row(stages)}</table>'
    lead = (
        '<p class="quiet">From top to bottom; each name leads to the lines which that pass took '
        "away (red), brought (green) or moved (blue). Temporaries are counted as if none shared "
        "memory.</p>"
    )
    return f'<section id="passes"><h2>Passes</h2>{lead}<div class="scroll">{table}</div></section>'


def _pass_row(stage: Stage, diff: Diff, share: float) -> str:
    name = escape(stage.name)
    quiet = "" if diff.changes or stage.refusals else ' class="quiet"'
    ops = _change(stage.ops_before, stage.ops_after)
    numbers = [ops, size_text(stage.nbytes), diff.changes, str(len(stage.refusals) or "")]
    cells = [
        f'<th scope="row"><a href="#{name}">{name}</a></th>',
        f'<td class="n time" style="--share: {share:.0%}">{stage.milliseconds:.2f}</td>',
        *(f'<td class="n">{escape(number)}</td>' for number in numbers),
    ]
    return f"<tr{quiet}>{''.join(cells)}</tr>"


def _total_row(stages: Sequence[Stage]) -> str:
    if not stages:
        return ""
    spent = sum(stage.milliseconds for stage in stages)
    refused = sum(len(stage.refusals) for stage in stages)
    ops = _change(stages[0].ops_before, stages[-1].ops_after)
    numbers = [f"{spent:.2f}", ops, size_text(stages[-1].nbytes), "", str(refused or "")]
    cells = "".join(f'<td class="n">{escape(number)}</td>' for number in numbers)
    return f'<tr class="all"><th scope="row">all</th>{cells}</tr>'


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _stage_section(stage: Stage, diff: Diff) -> str:
    """A pass: what it declined and why, and the lines it changed."""
    name = escape(stage.name)
    note = f"{stage.milliseconds:.2f} ms, {diff.changes or 'nothing changed'}"
    head = f"<h2>{name}<small>{note}</small></h2>{_refusal_list(stage.refusals)}"
    if not diff.changes:
        return f'<section id="{name}" class="calm">{head}</section>'
    columns = '<col class="at"><col><col class="at"><col>'
    table = f'<table class="diff">{columns}{"".join(diff.rows())}</table>'
    return f'<section id="{name}">{head}<div class="scroll">{table}</div></section>'


def _refusal_list(refusals: Sequence[str]) -> str:
    """The ops a pass left as they were, below the reason they share."""
    groups: dict[str, list[str]] = {}
    for text in refusals:
        op, end, reason = text.partition("): ")
        groups.setdefault(reason if end else text, []).append(op + ")" if end else "")
    items = [_refusal_item(reason, ops) for reason, ops in groups.items()]
    return f'<ul class="refusals">{"".join(items)}</ul>' if items else ""


def _refusal_item(reason: str, ops: Sequence[str]) -> str:
    times = f" ({len(ops)} times)" if len(ops) > 1 else ""
    codes = "".join(f"<code>{escape(op)}</code>" for op in ops if op)
    return f"<li>Declined{times}: {escape(reason)}{codes}</li>"


def _last_text(stages: Sequence[Stage]) -> str:
    return stages[-1].after if stages else ""


def _text_section(name: str, title: str, text: str) -> str:
    """A text that is shown when asked for, with numbers on its lines and its comments quiet."""
    if not text:
        return ""
    shown = re.sub(r"((?:^|\s)(?://|#) .*)$", r"<i>\1</i>", escape(text), flags=re.MULTILINE)
    lines = "\n".join("<span></span>" + line for line in shown.splitlines())
    head = f"<h2>{escape(title)}<small>{text.count(chr(10))} lines</small></h2>"
    pre = f'<pre class="scroll numbered">{lines}\n</pre>'
    return f'<section id="{name}">{head}<details><summary>Show</summary>{pre}</details></section>'
