"""What changed between two texts, as rows of a table with the two side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import takewhile, zip_longest

CONTEXT = 2
"""Unchanged lines shown on either side of a change."""


class Diff:
    """Two texts as lines, and how one becomes the other.

    `gone` and `come` count lines that only one of them has, `moved` those that changed places.
    """

    def __init__(self, before: list[str], after: list[str]) -> None:
        self.before = before
        self.after = after
        same = before == after
        self.matcher = SequenceMatcher(None, [] if same else before, [] if same else after, False)
        edits = [code[1:] for code in self.matcher.get_opcodes() if code[0] != "equal"]
        left = Counter(line for start, stop, _, _ in edits for line in before[start:stop])
        right = Counter(line for _, _, start, stop in edits for line in after[start:stop])
        self.stayed = left & right
        self.moved = self.stayed.total()
        self.gone = left.total() - self.moved
        self.come = right.total() - self.moved

    @property
    def changes(self) -> str:
        """How many lines went, came and moved, in a few characters; "" where none did.

        >>> Diff(["a", "b", "c"], ["b", "a", "d"]).changes
        '−1 +1, 1 moved'
        """
        edited = f"−{self.gone} +{self.come}" if self.gone or self.come else ""
        return ", ".join(filter(None, [edited, f"{self.moved} moved" if self.moved else ""]))

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
        left = None if at is None else self.before[at]
        right = None if to is None else self.after[to]
        kinds = ("", "") if equal else (self.kind(left, "gone"), self.kind(right, "come"))
        texts = _shown(left or ""), _shown(right or "")
        if kinds == ("gone", "come"):
            texts = _marked_code(left or "", right or "")
        return f"<tr>{''.join(map(_cell, (at, to), texts, kinds))}</tr>"

    def kind(self, line: str | None, edited: str) -> str:
        """How a line that is not the same on both sides is coloured; "" where there is none."""
        return "" if line is None else "moved" if line in self.stayed else edited


def _cell(index: int | None, text: str, kind: str) -> str:
    """The number and the text of a line, coloured where it is gone, new or moved."""
    number = "" if index is None else index + 1
    colour = f' class="{kind}"' if kind else ""
    return f"<td{colour}>{number}</td><td{colour}>{text}</td>"


_STACK = re.compile(r"(?:, )?'op_callstack': \['[^']*'\](?=[,}])")


def _parts(line: str) -> tuple[str, str]:
    """A line's code and its comment; what the comment says is left out of the attributes.

    >>> _parts("  y = relu(x) {'op_callstack': ['a.py:3'], 'role': 1}  // a.py:3")
    ("  y = relu(x) {'role': 1}", '  // a.py:3')
    """
    code, mark, comment = line.partition("  // ")
    if mark:
        code = _STACK.sub("", code).replace("{, ", "{").replace(" {}", "")
    return code, mark + comment


def _shown(line: str) -> str:
    code, comment = _parts(line)
    return escape(code) + _quiet(comment)


def _marked_code(left: str, right: str) -> tuple[str, str]:
    (a, above), (b, below) = _parts(left), _parts(right)
    old, new = marked(a, b)
    return old + _quiet(above), new + _quiet(below)


def _quiet(comment: str) -> str:
    return f"<i>{escape(comment)}</i>" if comment else ""


def marked(left: str, right: str) -> tuple[str, str]:
    """Two lines as HTML, in bold what stands between their common beginning and end.

    Nothing is bold where they have less than half of the shorter one in common.

    >>> marked("h = mul(x)", "h @s1 = mul(x)")
    ('h = mul(x)', 'h <b>@s1 </b>= mul(x)')
    """
    a, b = re.findall(r"\w+|\W", left), re.findall(r"\w+|\W", right)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    if 2 * (head + tail) < min(len(a), len(b)):
        return escape(left), escape(right)
    return _bold(a, head, tail), _bold(b, head, tail)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many items two sequences have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _bold(tokens: Sequence[str], head: int, tail: int) -> str:
    parts = tokens[:head], tokens[head : len(tokens) - tail], tokens[len(tokens) - tail :]
    before, middle, after = (escape("".join(part)) for part in parts)
    return f"{before}<b>{middle}</b>{after}" if middle else before + after
