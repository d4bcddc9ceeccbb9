"""A position in the tokens of PTX text, and what directives have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.ptx.errors import PtxSyntaxError
from tools.ptx.text.tokens import Token

_END = Token("end", "", 0)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)[^/]*(?://\s*(.*))?")
_MOST_BYTES = 1 << 30


class Reader:
    """Tokens read one after the other; errors name the line."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._files: dict[str, str] = {}

    @property
    def at_end(self) -> bool:
        """Whether all tokens are read."""
        return self._at >= len(self._tokens)

    @property
    def line(self) -> int:
        """The line of the token taken last."""
        return self._tokens[min(self._at, len(self._tokens)) - 1].line if self._tokens else 0

    def next(self) -> Token:
        """Take a token; at the end, one without text."""
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else _END

    def peek(self) -> str:
        """The text of the next token."""
        return "" if self.at_end else self._tokens[self._at].text

    def peek_token(self) -> Token:
        """The next token, which is not taken."""
        return _END if self.at_end else self._tokens[self._at]

    def word(self) -> str:
        """Take a word; PtxSyntaxError if it is none."""
        token = self.next()
        if token.kind != "word":
            raise self.error(f"a word expected, not {token.text or 'the end'!r}")
        return token.text

    def take(self, text: str) -> None:
        """Take this token; PtxSyntaxError if it is another one."""
        token = self.next()
        if token.text != text:
            raise self.error(f"{text!r} expected, not {token.text or 'the end'!r}")

    def number(self) -> int:
        """Take a number from 0 to 2^30."""
        word = self.word()
        if not re.fullmatch(r"\d{1,10}", word) or int(word) > _MOST_BYTES:
            raise self.error(f"a number to {_MOST_BYTES} expected, not {word[:40]}")
        return int(word)

    def numbers(self) -> list[int]:
        """Take numbers with commas between them."""
        values = [self.number()]
        while self.peek() == ",":
            self.take(",")
            values.append(self.number())
        return values

    def array_size(self, plain: int) -> int:
        """Take `[n]`: n, 0 for `[]`, and `plain` if there is none."""
        if self.peek() != "[":
            return plain
        self.take("[")
        size = self.number() if self.peek() != "]" else 0
        self.take("]")
        return size

    def error(self, message: str) -> PtxSyntaxError:
        """The error for the token taken last."""
        return PtxSyntaxError(f"PTX line {self.line}: {message}")

    def file(self, text: str) -> None:
        """Remember the name of a file."""
        match = _FILE.match(text)
        if match:
            self._files[match[1]] = match[2]

    def place(self, text: str) -> str:
        """The line of the source that a `.loc` means."""
        match = _LOC.match(text)
        if not match:
            return ""
        name = self._files.get(match[1], f"file {match[1]}")
        return (match[4] or f"{name}:{match[2]}:{match[3]}").strip()

    def skip_list(self) -> None:
        """Skip words with commas before them."""
        while self.peek() == ",":
            self.take(",")
            self.word()

    def skip_section(self) -> None:
        """Skip a section of debug data."""
        self.word()
        self._skip_braces()

    def _skip_braces(self) -> None:
        self.take("{")
        depth = 1
        while depth:
            if self.at_end:
                raise self.error("'}' expected, not the end")
            depth += {"{": 1, "}": -1}.get(self.next().text, 0)
