"""Line diff of a graph before and after a pass.

Lines are matched by what they describe: an op by its kind and outputs, a declaration by its name.
So a relabelled op is matched however far it moved, which a diff of plain text cannot do; the
smallest possible number of lines is reported as moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum

from compiler.record import OpNote, Stage
from compiler.support.dataclass import dataclass

CONTEXT = 2
"""Unchanged lines shown before and after a change."""


class RowKind(IntEnum):
    """Kind of difference of a row."""

    SAME = 0
    EDITED = 1
    REMOVED = 2
    ADDED = 3
    MOVED_FROM = 4
    MOVED_TO = 5


@dataclass(frozen=True)
class LinePair:
    """A line before and a line after, as indices from 0; None if there is none."""

    change: RowKind
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Line:
    """A line of a stage, with the key it is matched by."""

    key: Hashable
    text: str


def lines_of(stage: Stage) -> list[Line]:
    """Return the lines of a stage in order, each with a unique key."""
    counts: dict[Hashable, int] = {}

    def line(key: Hashable, text: str) -> Line:
        counts[key] = counts.get(key, -1) + 1
        return Line((key, counts[key]), text)

    lines = [line(text.partition(":")[0], text) for text in stage.head]
    lines += [line(key(op), text) for op in stage.ops for text in op.lines]
    return lines + [line(text.split(" ")[0], text) for text in stage.tail]


def key(op: OpNote) -> Hashable:
    """Return a key of an op that does not change when it is labelled or moved."""
    return (op.kind, op.outputs) if op.outputs else (op.kind, op.inputs)


def compare(before: Sequence[Line], after: Sequence[Line]) -> list[LinePair]:
    """Return all rows, in an order in which both sides are ascending.

    >>> lines = [[Line(c, c) for c in text] for text in ("abc", "cad")]
    >>> [row.change.name for row in compare(*lines)]
    ['MOVED_FROM', 'REMOVED', 'SAME', 'MOVED_TO', 'ADDED']
    """
    new = {line.key: index for index, line in enumerate(after)}
    old = {line.key: index for index, line in enumerate(before)}
    both = [new[line.key] for line in before if line.key in new]
    fixed = set(_longest_increasing(both))
    rows: list[LinePair] = []
    at = 0
    for index, line in enumerate(before):
        target = new.get(line.key)
        if target is None or target not in fixed:
            rows.append(
                LinePair(RowKind.REMOVED if target is None else RowKind.MOVED_FROM, index, None)
            )
            continue
        rows += [_unmatched(after[k], k, old) for k in range(at, target)]
        same = line.text == after[target].text
        rows.append(LinePair(RowKind.SAME if same else RowKind.EDITED, index, target))
        at = target + 1
    return rows + [_unmatched(after[k], k, old) for k in range(at, len(after))]


def _unmatched(line: Line, index: int, old: Mapping[Hashable, int]) -> LinePair:
    return LinePair(RowKind.MOVED_TO if line.key in old else RowKind.ADDED, None, index)


def _longest_increasing(numbers: Sequence[int]) -> list[int]:
    """Return the longest increasing subsequence (patience sorting)."""
    tops: list[int] = []
    below: dict[int, int | None] = {}
    for number in numbers:
        pile = bisect_left(tops, number)
        below[number] = tops[pile - 1] if pile else None
        tops[pile : pile + 1] = [number]
    subsequence: list[int] = []
    number = tops[-1] if tops else None
    while number is not None:
        subsequence.append(number)
        number = below[number]
    return subsequence[::-1]


def count(rows: Sequence[LinePair]) -> dict[RowKind, int]:
    """Count the rows of each kind except `SAME`; a move is counted once."""
    kinds = (RowKind.EDITED, RowKind.REMOVED, RowKind.ADDED, RowKind.MOVED_FROM)
    return {kind: sum(row.change is kind for row in rows) for kind in kinds}


def text(rows: Sequence[LinePair]) -> str:
    """Format the counts in a few characters; empty if nothing changed.

    >>> edited = LinePair(RowKind.EDITED, 1, 0)
    >>> text([LinePair(RowKind.REMOVED, 0, None), edited, LinePair(RowKind.ADDED, None, 1)])
    '−1 +1 ~1'
    """
    counts = count(rows)
    signs = {RowKind.REMOVED: "−", RowKind.ADDED: "+", RowKind.EDITED: "~"}
    changed = [f"{sign}{counts[kind]}" for kind, sign in signs.items() if counts[kind]]
    moved = [f"{counts[RowKind.MOVED_FROM]} moved"] if counts[RowKind.MOVED_FROM] else []
    return ", ".join(filter(None, [" ".join(changed), *moved]))
