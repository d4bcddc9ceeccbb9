"""Text tables with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.support.escape import one_line


def table(rows: Sequence[Sequence[str]], indent: str = "  ", left: int = 1) -> str:
    """Format rows as aligned columns: the first `left` left-aligned, the others right-aligned.

    >>> print(table([("pass", "ms"), ("schedule", "12.5")]))
      pass        ms
      schedule  12.5
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        pairs = zip(row, widths, strict=True)
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(pairs)]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def count(number: int, noun: str) -> str:
    """Format a number with its noun, in the plural unless it is 1.

    >>> count(1, "op"), count(1797, "digit")
    ('1 op', '1,797 digits')
    """
    return f"{number:,} {noun}" + "s" * (number != 1)
