"""Lines of source with indentation, and names that are Python and not taken."""

from __future__ import annotations

import keyword
import re


def printable(text: str) -> str:
    r"""Text in which what would end a line is spelled out.

    >>> printable("a\nimport os")
    'a\\nimport os'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Writer:
    """Collects lines at a depth of indentation."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str = "") -> None:
        """Write one line at the current depth."""
        self.lines.append("    " * self.depth + text if text else "")

    def comment(self, text: str) -> None:
        """Write a comment; names in it come from users and files, and stay on its line."""
        self.line(f"# {printable(text)}")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class Names:
    """Python names made from the names of variables, each given out once.

    >>> names = Names({"np"})
    >>> names.make("fc_0.tmp_0"), names.make("fc_0:tmp_0"), names.make("np"), names.make("2d")
    ('fc_0_tmp_0', 'fc_0_tmp_0_1', 'np_1', 'v2d')
    """

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def make(self, stem: str) -> str:
        """A fresh name that looks like `stem`."""
        base = re.sub(r"\W", "_", stem.replace("@GRAD", "_grad"), flags=re.ASCII)
        base = f"v{base}" if not base or base[0].isdigit() or keyword.iskeyword(base) else base
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name
