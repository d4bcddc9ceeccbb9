"""What a pass changed, line beside line.

A line of a graph is told by what it is about: an op by its kind and what it writes, a declaration
by its name. So an op that got a label stands beside itself however far it moved, which a
comparison of bare lines cannot see; of those that changed places the fewest are called moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from compiler.record import OpNote, Stage

CONTEXT = 2
"""Unchanged lines shown on either side of a change."""


class Change(IntEnum):
    """How a row differs between before and after."""

    SAME = 0
    EDITED = 1
    GONE = 2
    COME = 3
    LEFT = 4
    ARRIVED = 5


@dataclass(frozen=True)
class Row:
    """A line before and the line after, as their numbers from 0; None on a side without one."""

    change: Change
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Line:
    """A line of a stage, and what it is about."""

    key: Hashable
    text: str


def lines_of(stage: Stage) -> list[Line]:
    """The lines of a stage in order, each with a key of its own."""
    counts: dict[Hashable, int] = {}

    def line(key: Hashable, text: str) -> Line:
        counts[key] = counts.get(key, -1) + 1
        return Line((key, counts[key]), text)

    found = [line(text.partition(":")[0], text) for text in stage.head]
    found += [line(key(op), text) for op in stage.ops for text in op.lines]
    return found + [line(text.split(" ")[0], text) for text in stage.tail]


def key(op: OpNote) -> Hashable:
    """What tells an op from the others of its graph, and stays when it is labelled or moved."""
    return (op.kind, op.outputs) if op.outputs else (op.kind, op.inputs)


def compare(before: Sequence[Line], after: Sequence[Line]) -> list[Row]:
    """All rows, in an order in which both sides read from top to bottom.

    >>> lines = [[Line(c, c) for c in text] for text in ("abc", "cad")]
    >>> [(row.change.name, row.before, row.after) for row in compare(*lines)]
    [('LEFT', 0, None), ('GONE', 1, None), ('SAME', 2, 0), ('ARRIVED', None, 1), ('COME', None, 2)]
    """
    new = {line.key: index for index, line in enumerate(after)}
    old = {line.key: index for index, line in enumerate(before)}
    both = [new[line.key] for line in before if line.key in new]
    fixed = set(_longest_rising(both))
    rows: list[Row] = []
    at = 0
    for index, line in enumerate(before):
        target = new.get(line.key)
        if target is None or target not in fixed:
            rows.append(Row(Change.GONE if target is None else Change.LEFT, index, None))
            continue
        rows += [_unmatched(after[k], k, old) for k in range(at, target)]
        same = line.text == after[target].text
        rows.append(Row(Change.SAME if same else Change.EDITED, index, target))
        at = target + 1
    return rows + [_unmatched(after[k], k, old) for k in range(at, len(after))]


def _unmatched(line: Line, index: int, old: Mapping[Hashable, int]) -> Row:
    return Row(Change.ARRIVED if line.key in old else Change.COME, None, index)


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """The longest subsequence that only rises (patience sorting)."""
    tops: list[int] = []
    below: dict[int, int | None] = {}
    for number in numbers:
        pile = bisect_left(tops, number)
        below[number] = tops[pile - 1] if pile else None
        tops[pile : pile + 1] = [number]
    found: list[int] = []
    number = tops[-1] if tops else None
    while number is not None:
        found.append(number)
        number = below[number]
    return found[::-1]


def count(rows: Sequence[Row]) -> dict[Change, int]:
    """How many rows there are of each kind that is not `SAME`; a move is counted once."""
    kinds = (Change.EDITED, Change.GONE, Change.COME, Change.LEFT)
    return {kind: sum(row.change is kind for row in rows) for kind in kinds}


def text(rows: Sequence[Row]) -> str:
    """The counts in a few characters; "" where nothing changed.

    >>> text([Row(Change.GONE, 0, None), Row(Change.EDITED, 1, 0), Row(Change.COME, None, 1)])
    '−1 +1 ~1'
    """
    found = count(rows)
    signs = {Change.GONE: "−", Change.COME: "+", Change.EDITED: "~"}
    said = [f"{sign}{found[kind]}" for kind, sign in signs.items() if found[kind]]
    moved = [f"{found[Change.LEFT]} moved"] if found[Change.LEFT] else []
    return ", ".join(filter(None, [" ".join(said), *moved]))
