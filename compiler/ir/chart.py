"""The arena as a picture: time to the right, offsets upwards, a box for each buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from compiler.ir.dims import Size

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 340, 64, 18, 20
"""The drawing: its size, and the margins that hold the axes and the peak's label."""

_LISTED = 10
"""Buffers that the legend lists, the largest first."""


@dataclass(frozen=True)
class Bar:
    """A buffer in the arena: `nbytes` at `offset`, alive in the steps `start <= step < stop`."""

    name: str
    offset: int
    nbytes: int
    start: int
    stop: int


def size_text(size: Size | None) -> str:
    """Bytes as a person reads them; an expression as it stands; nothing for None.

    >>> size_text(1536), size_text(12), size_text(None)
    ('1.5 KiB', '12 B', '')
    """
    if not isinstance(size, int):
        return "" if size is None else f"{size} B"
    unit = min((size.bit_length() - 1) // 10, 4) if size > 0 else 0
    return f"{size / 1024**unit:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def memory_section(bars: Sequence[Bar]) -> str:
    """The picture as HTML, with its peak marked and what is alive there listed; "" for no bars."""
    if not bars:
        return ""
    steps, height = max(bar.stop for bar in bars), max(bar.offset + bar.nbytes for bar in bars)
    live = _live_bytes(bars, steps)
    peak = live.index(max(live))
    scale = _Scale(steps, max(height, 1))
    parts = [*scale.axes(), *(scale.box(bar, index) for index, bar in enumerate(bars))]
    parts += [scale.outline(live), scale.mark(peak, live[peak])]
    view = (
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Buffers of the arena over time"'
    )
    note = f"{size_text(height)} of arena, {size_text(max(live))} alive at most (dashed)"
    return (
        f'<section id="memory"><h2>Memory<small>{note}</small></h2>'
        '<p class="quiet">Steps go to the right, addresses upwards; a box is a buffer while it '
        "holds something, and the dashed line is what all of them hold together. "
        "Rest on a box to see what it is.</p>"
        f'<div class="scroll"><svg {view}>{"".join(parts)}</svg></div>{_legend(bars, peak)}'
        "</section>"
    )


def _live_bytes(bars: Sequence[Bar], steps: int) -> list[int]:
    """The bytes alive in each step."""
    change = [0] * (steps + 1)
    for bar in bars:
        change[bar.start] += bar.nbytes
        change[bar.stop] -= bar.nbytes
    return list(accumulate(change))[:steps]


def _legend(bars: Sequence[Bar], peak: int) -> str:
    """What is alive at the peak, the largest first, in the colours of the picture."""
    alive = [(i, bar) for i, bar in enumerate(bars) if bar.start <= peak < bar.stop]
    alive.sort(key=lambda pair: -pair[1].nbytes)
    items = [
        f'<li {_hue(index)}>{escape(bar.name)} <span class="quiet">{size_text(bar.nbytes)}</span>'
        for index, bar in alive[:_LISTED]
    ]
    rest = alive[_LISTED:]
    more = size_text(sum(bar.nbytes for _, bar in rest))
    items += [f'<li class="more quiet">{len(rest)} more, {more}'] if rest else []
    listed = "".join(item + "</li>" for item in items)
    return f'<p class="quiet">Alive at the peak, step {peak}:</p><ul class="legend">{listed}</ul>'


def _hue(index: int) -> str:
    """A colour for each buffer, far from those of its neighbours: steps of the golden angle."""
    return f'style="--hue: {index * 137 % 360}"'


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
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - nbytes / self.height), 2)

    def axes(self) -> Iterator[str]:
        """Lines and numbers for four parts of the arena, and for eight of the time."""
        for part in range(5):
            y, label = self.y(self.height * part / 4), size_text(self.height * part // 4)
            yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 3}" text-anchor="end">{label}</text>'
        for step in range(0, self.steps, max(1, self.steps // 8)):
            word = "step " if step == 0 else ""
            yield f'<text x="{self.x(step)}" y="{_HEIGHT - 5}">{word}{step}</text>'

    def box(self, bar: Bar, index: int) -> str:
        """A buffer, with its name where there is room for it."""
        x, y = self.x(bar.start), self.y(bar.offset + bar.nbytes)
        width, height = self.x(bar.stop) - x, self.y(bar.offset) - y
        life = f"steps {bar.start} to {bar.stop - 1}"
        about = f"{bar.name}: {size_text(bar.nbytes)} at {bar.offset}, {life}"
        place = f'x="{x}" y="{y}" width="{width:.2f}" height="{height:.2f}"'
        rect = f"<rect {place} {_hue(index)}><title>{escape(about)}</title></rect>"
        if height < 13 or width < 6.3 * len(bar.name) + 6:
            return rect
        return f'{rect}<text class="name" x="{x + 3}" y="{y + 10}">{escape(bar.name)}</text>'

    def outline(self, live: Sequence[int]) -> str:
        """The bytes alive in each step, as a line of stairs."""
        corners = ((x, nbytes) for step, nbytes in enumerate(live) for x in (step, step + 1))
        points = " ".join(f"{self.x(x)},{self.y(nbytes)}" for x, nbytes in corners)
        return f'<polyline points="{points}"/>'

    def mark(self, step: int, nbytes: int) -> str:
        """A dot on the stairs where they are highest, and what it stands for."""
        x, y = (self.x(step) + self.x(step + 1)) / 2, self.y(nbytes)
        anchor = "end" if step > self.steps / 2 else "start"
        label = f"peak: {size_text(nbytes)}"
        dot = f'<circle cx="{x:.2f}" cy="{y}" r="3.5"/>'
        return (
            f'{dot}<text class="name" x="{x:.2f}" y="{y - 7}" text-anchor="{anchor}">{label}</text>'
        )
