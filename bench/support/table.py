"""Formats rows of a benchmark as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""One line of results: names of columns to numbers and words, plain enough for JSON."""


def table(title: str, rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """A title and aligned rows. `columns` maps a row's keys to formats; a missing value is `–`.

    >>> print(table("Sizes", [{"name": "w", "bytes": 4096}], {"name": "", "bytes": ",d"}))
    Sizes
      name  bytes
      w     4,096
    """
    lines = [list(columns)]
    lines += [[_cell(row.get(key), form) for key, form in columns.items()] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    left = [not form for form in columns.values()]
    return "\n".join([title, *("  " + _aligned(line, widths, left) for line in lines)])


def goal(found: str, met: bool, wanted: str) -> str:
    """A line that states whether a goal is met.

    >>> print(goal("0.71 s in all", True, "< 1 s"))
      met     0.71 s in all (goal < 1 s)
    """
    return f"  {'met    ' if met else 'MISSED '} {found} (goal {wanted})"


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def _aligned(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    """Left-align words, right-align numbers."""
    parts = [
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(cells, widths, left, strict=True)
    ]
    return "  ".join(parts).rstrip()
