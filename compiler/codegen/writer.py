"""An indenting source writer, and an allocator of unique Python names."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from compiler.support.escape import expect_one_line, one_line

LONGEST_NAME = 100
"""Most characters of a Python name derived from a variable's name."""


def comment_lines(texts: Iterable[str]) -> list[str]:
    r"""Format comments inside a function, each on one line; the text may come from users and files.

    >>> comment_lines(["y = relu(a\nimport os)"])
    ['    # y = relu(a\\nimport os)']
    """
    return [f"    # {one_line(text)}" for text in texts]


class Writer:
    """Collects lines, indented to the current depth."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str = "") -> None:
        """Write one line at the current depth; ValueError if the text spans several lines."""
        self.lines.append("    " * self.depth + expect_one_line(text) if text else "")

    def comment(self, text: str) -> None:
        """Write a comment, escaped to one line: names in it come from users and files."""
        self.line(f"# {one_line(text)}")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class Names:
    """Allocates unique Python names derived from the names of variables.

    >>> names = Names({"np"})
    >>> names.make("fc_0.tmp_0"), names.make("fc_0:tmp_0"), names.make("np"), names.make("2d")
    ('fc_0_tmp_0', 'fc_0_tmp_0_1', 'np_1', 'v2d')
    """

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)
        self._counts: dict[str, int] = {}

    def make(self, stem: str) -> str:
        """Return an unused name derived from `stem`."""
        stem = stem[:LONGEST_NAME].replace("@GRAD", "_grad")
        base = re.sub(r"\W", "_", stem, flags=re.ASCII)
        base = f"v{base}" if not base or base[0].isdigit() or keyword.iskeyword(base) else base
        name, count = base, self._counts.get(base, 0)
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self._counts[base] = count
        self.taken.add(name)
        return name
