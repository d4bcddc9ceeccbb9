"""What changed between two texts, as rows of a table with the two side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import takewhile, zip_longest

CONTEXT = 2
"""Unchanged lines shown on either side of a change."""


class Diff:
    """Two texts as lines, and how one becomes the other."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        self.before = before
        self.after = after
        same = before == after
        self.matcher = SequenceMatcher(None, [] if same else before, [] if same else after, False)
        edits = [code[1:] for code in self.matcher.get_opcodes() if code[0] != "equal"]
        self.gone = sum(stop - start for start, stop, _, _ in edits)
        self.come = sum(stop - start for _, _, start, stop in edits)

    def rows(self) -> Iterator[str]:
        """Table rows: changed lines beside each other, with some context, the rest folded."""
        shown = 0
        for group in self.matcher.get_grouped_opcodes(CONTEXT):
            yield from self.fold(group[0][1] - shown)
            for tag, a, a_stop, b, b_stop in group:
                pairs = zip_longest(range(a, a_stop), range(b, b_stop))
                yield from (self.row(tag == "equal", *pair) for pair in pairs)
            shown = group[-1][2]
        yield from self.fold(len(self.before) - shown)

    def fold(self, count: int) -> list[str]:
        """A row that stands for lines which are the same in both."""
        text = "1 line" if count == 1 else f"{count} lines"
        return [f'<tr class="fold"><td colspan="4">{text} unchanged</td></tr>'] if count else []

    def row(self, equal: bool, at: int | None, to: int | None) -> str:
        """Two lines side by side, either of which may be missing."""
        left = "" if at is None else self.before[at]
        right = "" if to is None else self.after[to]
        whole = equal or at is None or to is None
        texts = (escape(left), escape(right)) if whole else marked(left, right)
        kinds = ("", "") if equal else ("gone", "come")
        cells = map(_cell, (at, to), texts, kinds)
        return f"<tr>{''.join(cells)}</tr>"


def _cell(index: int | None, text: str, kind: str) -> str:
    """The number and the text of a line, coloured where it is gone or new."""
    number = "" if index is None else index + 1
    colour = f' class="{kind}"' if kind and index is not None else ""
    return f"<td{colour}>{number}</td><td{colour}>{text}</td>"


def marked(left: str, right: str) -> tuple[str, str]:
    """Two lines as HTML, in bold what stands between their common beginning and end.

    >>> marked("h = mul(x)", "h @s1 = mul(x)")
    ('h = mul(x)', 'h <b>@s1 </b>= mul(x)')
    """
    a, b = re.findall(r"\w+|\W", left), re.findall(r"\w+|\W", right)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    return _bold(a, head, tail), _bold(b, head, tail)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many items two sequences have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _bold(tokens: Sequence[str], head: int, tail: int) -> str:
    parts = tokens[:head], tokens[head : len(tokens) - tail], tokens[len(tokens) - tail :]
    before, middle, after = (escape("".join(part)) for part in parts)
    return f"{before}<b>{middle}</b>{after}" if middle else before + after
