"""How Sphinx builds the site of this folder: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent

project = "fluid-compiler"
author = "the authors of fluid-compiler"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["kubernetes", "_build"]
html_theme = "furo"
html_title = project
default_role = "code"
myst_heading_anchors = 4
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "triton", "grpc"]


def shown_outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn links to files that are not pages of the site into their paths in the repository."""
    folder = (DOCS / page).parent

    def path_of(link: re.Match[str]) -> str:
        text, target = link[1], (folder / link[2].partition("#")[0]).resolve()
        if DOCS in target.parents and target.suffix == ".md":
            return link[0]
        path = f"`{target.relative_to(DOCS.parent)}`"
        return path if text.strip("`") == path.strip("`") else f"{text} ({path})"

    source[0] = re.sub(r"(?<!!)\[([^][]+)\]\((?!https?:|#)([^)\s]+)\)", path_of, source[0])


def setup(app: Sphinx) -> None:
    """Connect what this file adds to Sphinx."""
    app.add_lexer("ir", TextLexer)
    app.connect("source-read", shown_outside)
