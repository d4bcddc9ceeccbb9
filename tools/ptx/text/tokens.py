"""The words of PTX text, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.ptx.errors import PtxSyntaxError

MOST_CHARACTERS = 64 << 20
"""Longest text that is read."""

_TOKEN = re.compile(
    r"""(?P<loc>^[ \t]*\.loc\b[^\n]*)
      | (?P<file>^[ \t]*\.file\b[^\n]*)
      | (?P<blank>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
      | (?P<newline>\n)
      | (?P<string>"[^"\n]*")
      | (?P<word>[\w.$%]+(?:::\w+(?:\.\w+)*)*)
      | (?P<mark>[{}()\[\];,:=@!|+<>*-])""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a mark, a string, or a whole line of `.loc` or `.file`."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """Split PTX text. Raises PtxSyntaxError at the first character that cannot be part of it."""
    if len(text) > MOST_CHARACTERS:
        raise PtxSyntaxError(
            f"PTX of {len(text)} characters is not read, at most {MOST_CHARACTERS}"
        )
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxSyntaxError(f"PTX line {line}: unexpected {text[at]!r}")
        if match.lastgroup not in ("blank", "newline"):
            yield Token(match.lastgroup or "", match[0].strip(), line)
        line += match[0].count("\n")
        at = match.end()
