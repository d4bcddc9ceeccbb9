"""Roofline charts as SVG text: GFLOP/s over operations per byte, with logarithmic axes.

Dots have numbers, whose names and times are in the legend, so that names never overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from math import ceil, floor, log2

from compiler.report.roofline import time_text
from compiler.support.dataclass import dataclass
from compiler.support.escape import html_text, one_line

WIDTH, HEIGHT, MARGIN, LEGEND = 600, 460, 60, 320
"""Pixels: of the plane with its margins, and of the legend to its right."""
LINE = 18
ROOFS, DOT = ("#8c1d18", "#d62728", "#f0907a"), "#1f77b4"
NAMED, LONGEST_NAME = 14, 34
"""Points that are listed, the longest first, and the most characters of a name."""


@dataclass(frozen=True)
class Point:
    """A kernel: its operations per byte, its GFLOP/s, and its seconds, which scale the dot."""

    name: str
    intensity: float
    rate: float
    seconds: float


@dataclass(frozen=True)
class _Axis:
    """Powers of two from `low` to `high` along `length` pixels."""

    low: int
    high: int
    length: int

    @classmethod
    def over(cls, values: Sequence[float], length: int) -> _Axis:
        low, high = floor(log2(min(values))), ceil(log2(max(values)))
        return cls(low, max(high, low + 1), length)

    def place(self, value: float) -> float:
        """Pixels from the start."""
        return (log2(value) - self.low) / (self.high - self.low) * self.length

    def ticks(self) -> list[float]:
        """Powers of two, at most about ten."""
        step = max(1, (self.high - self.low) // 8)
        return [2.0**power for power in range(self.low, self.high + 1, step)]


@dataclass(frozen=True)
class _Plane:
    """The area between the axes, in pixels of the drawing."""

    x: _Axis
    y: _Axis

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        return MARGIN + self.x.place(intensity), HEIGHT - MARGIN - self.y.place(rate)


def roofline_chart(
    title: str, peak: float, bandwidths: Mapping[str, float], points: Sequence[Point]
) -> str:
    """An SVG document: the peak in GFLOP/s, a slope for each bandwidth in GB/s by its name, and a
    dot for each point, whose title has its numbers.
    """
    ridges = [peak / bandwidth for bandwidth in bandwidths.values()]
    intensities = [*(ridge / 4 for ridge in ridges), *(ridge * 4 for ridge in ridges)]
    intensities += [point.intensity for point in points]
    plane = _Plane(
        _Axis.over(intensities, WIDTH - 2 * MARGIN),
        _Axis.over([peak * 1.2, peak / 64, *(p.rate for p in points)], HEIGHT - 2 * MARGIN),
    )
    width = WIDTH + LEGEND
    size = f'width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, MARGIN / 2, title, "middle"),
        _text(WIDTH / 2, HEIGHT - MARGIN / 4, "operations per byte", "middle"),
        _text(MARGIN, MARGIN - 20, "GFLOP/s", "middle"),
        *_grid(plane), *_roofs(plane, peak, bandwidths), *_dots(plane, points),
        *_legend(bandwidths, points), "</svg>",
    ]) + "\n"  # fmt: skip


def _grid(plane: _Plane) -> Iterable[str]:
    bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
    for tick in plane.x.ticks():
        at = MARGIN + plane.x.place(tick)
        yield f'<path d="M{at:.1f} {MARGIN}V{bottom}" stroke="#ddd"/>'
        yield _text(at, bottom + 16, f"{tick:g}", "middle")
    for tick in plane.y.ticks():
        at = bottom - plane.y.place(tick)
        yield f'<path d="M{MARGIN} {at:.1f}H{right}" stroke="#ddd"/>'
        yield _text(MARGIN - 6, at + 4, f"{tick:g}", "end")


def _roofs(plane: _Plane, peak: float, bandwidths: Mapping[str, float]) -> Iterable[str]:
    """The peak, and below it the slope of each bandwidth, from where it enters the chart."""
    right = 2.0**plane.x.high
    first = min((peak / bandwidth for bandwidth in bandwidths.values()), default=right)
    (a, top), (b, _) = plane.at(first, peak), plane.at(right, peak)
    yield _line(a, top, b, top, ROOFS[0])
    yield _text(b, top - 6, f"{peak:.0f} GFLOP/s", "end", ROOFS[0])
    for bandwidth, colour in zip(bandwidths.values(), cycle(ROOFS), strict=False):
        start = max(2.0**plane.x.low, 2.0**plane.y.low / bandwidth)
        yield _line(*plane.at(start, start * bandwidth), *plane.at(peak / bandwidth, peak), colour)


def _dots(plane: _Plane, points: Sequence[Point]) -> Iterable[str]:
    whole = sum(point.seconds for point in points)
    for place, point in enumerate(_longest_first(points), 1):
        x, y = plane.at(point.intensity, point.rate)
        radius = 3 + 9 * (point.seconds / whole) ** 0.5
        label = f"{point.name}: {point.rate:.1f} GFLOP/s, {point.seconds * 1e6:.1f} µs"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{DOT}" fill-opacity="0.6">'
            f"<title>{html_text(one_line(label))}</title></circle>"
        )
        if place <= NAMED:
            yield _text(x + radius + 2, y + 4, str(place), "start", DOT)


def _legend(bandwidths: Mapping[str, float], points: Sequence[Point]) -> Iterable[str]:
    """The colour of each bandwidth, and the names and times of the longest points."""
    y = MARGIN
    for (name, rate), colour in zip(bandwidths.items(), cycle(ROOFS), strict=False):
        yield _line(WIDTH - 20, y - 4, WIDTH, y - 4, colour)
        yield _text(WIDTH + 8, y, f"{rate:.0f} GB/s in {name}", "start", colour)
        y += LINE
    for place, point in enumerate(_longest_first(points)[:NAMED], 1):
        y += LINE
        cut = point.name[: LONGEST_NAME - 1] + "…"
        name = point.name if len(point.name) <= LONGEST_NAME else cut
        yield _text(WIDTH, y, str(place), "end", DOT)
        yield _text(WIDTH + 8, y, f"{name}  {time_text(point.seconds)}", "start", DOT)


def _longest_first(points: Sequence[Point]) -> list[Point]:
    return sorted(points, key=lambda each: -each.seconds)


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    path = f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"
    return f'<path d="{path}" stroke="{colour}" fill="none" stroke-width="2"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str = "black") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{html_text(one_line(words))}</text>"
