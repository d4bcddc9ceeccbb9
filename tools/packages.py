"""`python -m tools.packages`: print docs/packages.md, the list of all packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("compiler", "runtime", "fluid", "fleet", "bench", "tools")

INTRODUCTION = """\
# Packages

Every package and what it holds: the first sentence of its docstring, printed by
`python -m tools.packages > docs/packages.md`. [architecture.md](architecture.md) says how they work
together and what each may import.
"""


def packages(top: str) -> Iterator[Path]:
    """The folders below `top` that are packages, sorted by path."""
    for file in sorted((ROOT / top).rglob("__init__.py"), key=lambda file: file.parent.parts):
        yield file.parent


def summary(package: Path) -> str:
    """The first sentence of a package's docstring, on one line.

    Raises ValueError if there is no docstring.
    """
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    if not docstring:
        raise ValueError(f"{package.relative_to(ROOT)}/__init__.py has no docstring")
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


def page() -> str:
    """The text of docs/packages.md."""
    sections = [INTRODUCTION]
    for top in TOPS:
        rows = [
            f"| `{package.relative_to(ROOT).as_posix()}` | {summary(package)} |"
            for package in packages(top)
        ]
        sections.append(
            "\n".join([f"## {top}\n", "| package | holds |", "|---|---|", *rows]) + "\n"
        )
    return "\n".join(sections)


if __name__ == "__main__":
    print(page(), end="")
