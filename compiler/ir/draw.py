"""Pictures of graphs: DOT of one graph, and a page that shows what each pass did to it.

The page is one file that needs nothing else: no script, no font, no picture from anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path
from string import Template

from compiler.ir.diff import Diff
from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text import show_op


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


@dataclass(frozen=True)
class Bar:
    """A buffer in the arena: `nbytes` at `offset`, alive in the steps `start <= step < stop`."""

    name: str
    offset: int
    nbytes: int
    start: int
    stop: int


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
    body = [_pass_table(stages, diffs), *map(_stage_section, stages, diffs)]
    body += [_memory_section(bars), _text_section("Graph at the end", _last_text(stages))]
    body += [_text_section("Generated source", source)]
    values = [
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in (summary or {}).items()
    ]
    page = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    return page.substitute(title=escape(title), summary="".join(values), body="\n".join(body))


def _pass_table(stages: Sequence[Stage], diffs: Sequence[Diff]) -> str:
    heads = ("ms", "ops", "temporaries", "lines", "refusals")
    head = "".join(f'<th scope="col" class="n">{text}</th>' for text in ("pass", *heads))
    longest = max((stage.milliseconds for stage in stages), default=0.0) or 1.0
    rows = [_pass_row(s, d, s.milliseconds / longest) for s, d in zip(stages, diffs, strict=True)]
    table = f'<table class="passes"><tr>{head}</tr>{"".join(rows)}</table>'
    return f'<h2>Passes</h2><div class="scroll">{table}</div>'


def _pass_row(stage: Stage, diff: Diff, share: float) -> str:
    ops = str(stage.ops_after)
    if stage.ops_before != stage.ops_after:
        ops = f"{stage.ops_before} → {stage.ops_after}"
    name = escape(stage.name)
    lines = f"−{diff.gone} +{diff.come}" if diff.gone or diff.come else ""
    numbers = [ops, size_text(stage.nbytes), lines, str(len(stage.refusals) or "")]
    cells = [
        f'<th scope="row"><a href="#{name}">{name}</a></th>',
        f'<td class="n time" style="--share: {share:.0%}">{stage.milliseconds:.2f}</td>',
        *(f'<td class="n">{escape(number)}</td>' for number in numbers),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def size_text(size: Size | None) -> str:
    """Bytes as a person reads them; an expression as it stands; nothing for None.

    >>> size_text(1536), size_text(12), size_text(None)
    ('1.5 KiB', '12 B', '')
    """
    if not isinstance(size, int):
        return "" if size is None else f"{size} B"
    unit = min((size.bit_length() - 1) // 10, 4) if size > 0 else 0
    return f"{size / 1024**unit:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def _stage_section(stage: Stage, diff: Diff) -> str:
    """A pass: what it declined and why, and the lines it changed."""
    name, changes = escape(stage.name), f"{stage.milliseconds:.2f} ms"
    refusals = "".join(f"<li>{escape(text)}</li>" for text in stage.refusals)
    listed = f'<ul class="refusals">{refusals}</ul>' if refusals else ""
    rows = "".join(diff.rows()) if diff.gone or diff.come else ""
    columns = '<col class="at"><col><col class="at"><col>'
    table = f'<div class="scroll"><table class="diff">{columns}{rows}</table></div>'
    shown = table if rows else '<p class="quiet">It changed nothing.</p>'
    return f'<section id="{name}"><h2>{name}<small>{changes}</small></h2>{listed}{shown}</section>'


def _last_text(stages: Sequence[Stage]) -> str:
    return stages[-1].after if stages else ""


def _text_section(title: str, text: str) -> str:
    """A text that is shown when asked for, its comments quiet."""
    if not text:
        return ""
    shown = re.sub(r"((?:^|\s)(?://|#) .*)$", r"<i>\1</i>", escape(text), flags=re.MULTILINE)
    head = f"<h2>{escape(title)}</h2>"
    return f'{head}<details><summary>Show</summary><pre class="scroll">{shown}</pre></details>'


_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1000, 340, 64, 20
"""The drawing of the arena: its size, and the margins that hold the axes."""


def _memory_section(bars: Sequence[Bar]) -> str:
    """The arena as a picture: time to the right, offsets upwards, a box for each buffer."""
    if not bars:
        return ""
    steps, height = max(bar.stop for bar in bars), max(bar.offset + bar.nbytes for bar in bars)
    live = _live_bytes(bars, steps)
    scale = _Scale(steps, max(height, 1))
    parts = [*scale.axes(), *(scale.box(bar, index) for index, bar in enumerate(bars))]
    parts.append(scale.outline(live))
    view = (
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Buffers of the arena over time"'
    )
    note = f"{size_text(height)} of arena, {size_text(max(live))} alive at most (dashed)"
    picture = f'<div class="scroll"><svg {view}>{"".join(parts)}</svg></div>'
    return f"<h2>Memory<small>{note}</small></h2>{picture}"


def _live_bytes(bars: Sequence[Bar], steps: int) -> list[int]:
    """The bytes alive in each step."""
    change = [0] * (steps + 1)
    for bar in bars:
        change[bar.start] += bar.nbytes
        change[bar.stop] -= bar.nbytes
    return list(accumulate(change))[:steps]


@dataclass(frozen=True)
class _Scale:
    """From steps and bytes to places in the drawing."""

    steps: int
    height: int

    def x(self, step: float) -> float:
        """Where a step begins."""
        return round(_LEFT + step * (_WIDTH - _LEFT) / self.steps, 2)

    def y(self, nbytes: float) -> float:
        """Where an offset lies."""
        return round((_HEIGHT - _BOTTOM) * (1 - nbytes / self.height * 0.97), 2)

    def axes(self) -> Iterator[str]:
        """Lines and numbers for four parts of the arena, and for eight of the time."""
        for part in range(5):
            y, label = self.y(self.height * part / 4), size_text(self.height * part // 4)
            yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 3}" text-anchor="end">{label}</text>'
        for step in range(0, self.steps, max(1, self.steps // 8)):
            yield f'<text x="{self.x(step)}" y="{_HEIGHT - 5}">{step}</text>'

    def box(self, bar: Bar, index: int) -> str:
        """A buffer, with its name where there is room for it."""
        x, y = self.x(bar.start), self.y(bar.offset + bar.nbytes)
        width, height = self.x(bar.stop) - x, self.y(bar.offset) - y
        life = f"steps {bar.start} to {bar.stop - 1}"
        about = f"{bar.name}: {size_text(bar.nbytes)} at {bar.offset}, {life}"
        place = f'x="{x}" y="{y}" width="{width:.2f}" height="{height:.2f}"'
        hue = f'style="--hue: {index * 137 % 360}"'
        rect = f"<rect {place} {hue}><title>{escape(about)}</title></rect>"
        if height < 11 or width < 6.5 * len(bar.name):
            return rect
        return f'{rect}<text class="name" x="{x + 3}" y="{y + 10}">{escape(bar.name)}</text>'

    def outline(self, live: Sequence[int]) -> str:
        """The bytes alive in each step, as a line of stairs."""
        corners = ((x, nbytes) for step, nbytes in enumerate(live) for x in (step, step + 1))
        points = " ".join(f"{self.x(x)},{self.y(nbytes)}" for x, nbytes in corners)
        return f'<polyline points="{points}"/>'
