"""A cursor over text that takes tokens and reports syntax errors with a caret."""

from __future__ import annotations

import re
from typing import Any

from compiler.errors import ParseError, ShapeError
from compiler.ir.dims import Size, parse_size
from compiler.ir.region import Region, region_from_sizes
from compiler.ir.text.literals import BARE_NAME, QUOTED_NAME, parse_attributes, parse_name
from compiler.ir.types import DType, Shape, parse_dtype
from compiler.support.dataclass import dataclass
from compiler.support.limits import MAX_BYTES, MAX_RANK, MAX_SIZE_TEXT

_SPACES = re.compile(r"[ \t\r]*")
_IDLE_LINE = re.compile(r"\s*(//|$)")
_NAME = re.compile(f"{BARE_NAME.pattern}|{QUOTED_NAME.pattern}")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_INSIDE = re.compile(r"[^\[\]]*")
_STRETCH = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"\[\]{}()]+|[\[\]{}()]""")
_TOKEN = re.compile(r"\w+|\S")
_SHOWN = 100
"""The number of characters of a long line shown on either side of the caret."""


@dataclass(frozen=True)
class Mark:
    """A position in a text: 0-based line and column."""

    row: int
    column: int


class Cursor:
    """A cursor over lines of text; empty lines and lines that begin with `//` are skipped.

    Methods that take a token raise ParseError on a mismatch, with the line number, the line, a
    caret, and what was expected.
    """

    def __init__(self, text: str, file: str = "") -> None:
        self.lines = text.split("\n")
        self.file = file
        self.row = -1
        self.column = 0
        self.next_line()

    @property
    def line(self) -> str:
        """The current line; empty at the end of the text."""
        return self.lines[self.row] if self.row < len(self.lines) else ""

    @property
    def at_end(self) -> bool:
        """True if all lines have been read."""
        return self.row >= len(self.lines)

    def mark(self) -> Mark:
        """Return the position of the next token, for error messages."""
        self._skip()
        return Mark(self.row, self.column)

    def next_line(self) -> None:
        """Go to the start of the next line that is not empty or a comment."""
        self.row, self.column = self.row + 1, 0
        while not self.at_end and _IDLE_LINE.match(self.line):
            self.row += 1

    def end_line(self) -> str:
        """Take the end of a line, optionally with a comment; returns the comment."""
        comment = ""
        if self.accept("//"):
            comment = self.line[self.column :].strip()
            self.column = len(self.line)
        if self.mark().column < len(self.line):
            raise self.expected("the end of the line")
        self.next_line()
        return comment

    def peek(self, text: str) -> bool:
        """Return whether `text` is next."""
        self._skip()
        return self.line.startswith(text, self.column)

    def accept(self, text: str) -> bool:
        """Take `text` if it is next; returns whether it was."""
        matches = self.peek(text)
        self.column += len(text) if matches else 0
        return matches

    def expect(self, text: str, why: str = "") -> None:
        """Take `text`."""
        if not self.accept(text):
            raise self.expected(f"{text!r}{why and ' ' + why}")

    def word(self, *known: str) -> str:
        """Take one of these words."""
        mark = self.mark()
        word = self.take(_WORD)
        if word not in known:
            raise self.expected(" or ".join(map(repr, known)), mark)
        return word

    def number(self, what: str) -> int:
        """Take a number of at most nine digits."""
        return int(self._take_required(_NUMBER, what))

    def name(self, what: str) -> str:
        """Take a name, bare or quoted."""
        mark = self.mark()
        text = self._take_required(_NAME, what)
        try:
            return parse_name(text)
        except ValueError as error:
            raise self.error(f"{text} is not a JSON string", mark) from error

    def dtype(self) -> DType:
        """Take an element type, `f32`."""
        mark = self.mark()
        text = self._take_required(_WORD, "an element type")
        try:
            return parse_dtype(text)
        except ValueError as error:
            raise self.error(str(error), mark) from error

    def shape(self) -> Shape:
        """Take a shape, `[N, 4]`; sizes are numbers, symbolic expressions, or `?`."""
        self.expect("[", "and a shape")
        mark, start, text = self.mark(), self.column, self.take(_INSIDE)
        pieces = text.split(",") if text.strip() else []
        if len(pieces) > MAX_RANK:
            raise self.error(f"a shape has at most {MAX_RANK} sizes, not {len(pieces)}", mark)
        sizes: list[Size] = []
        for piece in pieces:
            sizes.append(self._size(piece, Mark(self.row, start)))
            start += len(piece) + 1
        self.expect("]", "that closes the shape")
        return tuple(sizes)

    def region(self) -> Region:
        """Take the region of a var in its slot: `[offset]`, or `[offset, row, pitch]`."""
        mark = self.mark()
        region = region_from_sizes(self.shape())
        if region is None:
            raise self.error("a region is [offset] or [offset, row, pitch], in bytes", mark)
        return region

    def attributes(self) -> dict[str, Any]:
        """Take a dict of attributes; empty if there is none."""
        mark = self.mark()
        if not self.peek("{"):
            return {}
        text = self._bracketed()
        try:
            return parse_attributes(text)
        except ValueError as error:
            raise self.error(f"the text of the attributes {error}", mark) from error

    def take(self, pattern: re.Pattern[str]) -> str:
        """Take a match of the pattern; empty if there is none."""
        match = pattern.match(self.line, self.mark().column)
        self.column = match.end() if match else self.column
        return match[0] if match else ""

    def expected(self, what: str, mark: Mark | None = None) -> ParseError:
        """Build the error that something else was found instead of `what`."""
        mark = mark or self.mark()
        match = _TOKEN.match(self.lines[mark.row], mark.column) if not self.at_end else None
        shown = (
            repr(match[0]) if match else "the end of the text" if self.at_end else "the line's end"
        )
        return self.error(f"expected {what}, found {shown}", mark)

    def error(self, message: str, mark: Mark, hint: str = "") -> ParseError:
        """Build an error at a position."""
        row = min(mark.row, len(self.lines) - 1)
        place = f"{self.file}:{row + 1}" if self.file else f"line {row + 1}"
        return ParseError(
            f"{place}: {message}\n{_pointed(self.lines[row], mark.column)}", hint=hint
        )

    def _skip(self) -> None:
        spaces = _SPACES.match(self.line, self.column)
        self.column = spaces.end() if spaces else self.column

    def _size(self, text: str, mark: Mark) -> Size:
        if len(text) > MAX_SIZE_TEXT:
            raise self.error(f"a size has at most {MAX_SIZE_TEXT} characters", mark)
        try:
            size = parse_size(text)
        except ShapeError as error:
            raise self.error(error.message, mark, error.hint) from error
        except (ValueError, ArithmeticError, MemoryError) as error:
            raise self.error(f"{_shortened(text.strip())!r} is not a size", mark) from error
        if isinstance(size, int) and size > MAX_BYTES:
            raise self.error("a size has at most 63 bits", mark)
        if isinstance(size, int) and size < 0:
            raise self.error(f"a size cannot be {size}", mark, "write ? for an unknown size")
        return size

    def _bracketed(self) -> str:
        """Take a bracketed text, up to the matching closing bracket."""
        start, depth = self.mark(), 0
        for piece in _STRETCH.finditer(self.line, start.column):
            depth += (piece[0] in "[{(") - (piece[0] in ")}]")
            if not depth:
                self.column = piece.end()
                return self.line[start.column : self.column]
        raise self.error("this bracket is never closed in its line", start)

    def _take_required(self, pattern: re.Pattern[str], what: str) -> str:
        text = self.take(pattern)
        if not text:
            raise self.expected(what)
        return text


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _pointed(line: str, column: int) -> str:
    """Format a line, truncated if long, with a caret below a column."""
    start = max(0, column - _SHOWN)
    shown = line[start : column + _SHOWN]
    indent = re.sub("[^\t]", " ", shown[: column - start])
    return f"  {shown}\n  {indent}^"
