"""Line charts as SVG text, with logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2

WIDTH, HEIGHT, MARGIN = 640, 420, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


@dataclass(frozen=True)
class Line:
    """A named line through points of positive numbers."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """Powers of two from `low` to `high` along `length` pixels."""

    low: int
    high: int
    length: int

    @classmethod
    def over(cls, values: Sequence[float], length: int) -> Axis:
        """The axis that just holds some values."""
        low, high = floor(log2(min(values))), ceil(log2(max(values)))
        return cls(low, max(high, low + 1), length)

    def place(self, value: float) -> float:
        """Pixels from the start.

        >>> Axis(0, 4, 100).place(4)
        50.0
        """
        return (log2(value) - self.low) / (self.high - self.low) * self.length

    def ticks(self) -> list[float]:
        """The powers of two."""
        return [2.0**power for power in range(self.low, self.high + 1)]


def chart(title: str, below: str, lines: Sequence[Line]) -> str:
    """An SVG document: a line per series with its name, over powers of two on both axes."""
    x = Axis.over([a for line in lines for a, _ in line.points], WIDTH - 2 * MARGIN)
    y = Axis.over([b for line in lines for _, b in line.points], HEIGHT - 2 * MARGIN)
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, MARGIN / 2, title, "middle"),
        _text(WIDTH / 2, HEIGHT - MARGIN / 4, below, "middle"),
        *_grid(x, y),
    ]
    for place, line in enumerate(lines):
        parts += _drawn(line, COLOURS[place % len(COLOURS)], place, x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid(x: Axis, y: Axis) -> list[str]:
    parts: list[str] = []
    bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
    for tick in x.ticks():
        at = MARGIN + x.place(tick)
        parts.append(f'<path d="M{at:.1f} {MARGIN}V{bottom}" stroke="#ddd"/>')
        parts.append(_text(at, bottom + 16, f"{tick:g}", "middle"))
    for tick in y.ticks():
        at = bottom - y.place(tick)
        parts.append(f'<path d="M{MARGIN} {at:.1f}H{right}" stroke="#ddd"/>')
        parts.append(_text(MARGIN - 6, at + 4, f"{tick:g}", "end"))
    return parts


def _drawn(line: Line, colour: str, place: int, x: Axis, y: Axis) -> list[str]:
    at = [(MARGIN + x.place(a), HEIGHT - MARGIN - y.place(b)) for a, b in line.points]
    through = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
    dots = [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in at]
    top = MARGIN + 16 * (place + 1)
    return [
        f'<path d="M{through}" stroke="{colour}" fill="none" stroke-width="2"/>',
        *dots,
        _text(MARGIN + 10, top, line.name, "start", colour),
    ]


def _text(x: float, y: float, words: str, anchor: str, colour: str = "black") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"
