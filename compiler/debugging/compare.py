"""Two programs, or two stages of one, value by value: where they first differ, where most.

Values meet by name. What only one of them computes is counted and not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.debugging.difference import Difference, difference
from compiler.debugging.values import Numbers, Value
from compiler.report.table import table


@dataclass(frozen=True)
class Pair:
    """A value of both programs: how it is computed in each, and how far they are apart."""

    ours: Value
    theirs: Value
    difference: Difference


@dataclass(frozen=True)
class Comparison:
    """Every value that both compute, in the order of the first; results and state that both leave;
    and the labels of what only one of them computes.
    """

    pairs: tuple[Pair, ...]
    left: tuple[Difference, ...]
    ours_alone: tuple[str, ...]
    theirs_alone: tuple[str, ...]

    @property
    def off(self) -> list[Pair]:
        """The values that are beyond the tolerance, in order."""
        return [pair for pair in self.pairs if pair.difference.why]

    @property
    def largest(self) -> list[Pair]:
        """The same, furthest apart first."""
        return sorted(self.off, key=lambda pair: -pair.difference.relative)

    @property
    def agrees(self) -> bool:
        """Whether all results and all state that both leave are within the tolerance."""
        return not any(each.why for each in self.left)


def compare(ours: Numbers, theirs: Numbers, tolerance: float = 1e-4) -> Comparison:
    """Hold what two graphs computed against each other; floats may be `tolerance` apart, by the
    largest number of theirs, all else must be equal.
    """
    shared = [label for label in ours.values if label in theirs.values]
    pairs = [_pair(ours.values[label], theirs.values[label], tolerance) for label in shared]
    return Comparison(
        tuple(pairs),
        tuple(_left(ours.left, theirs.left, tolerance)),
        tuple([label for label in ours.values if label not in theirs.values]),
        tuple([label for label in theirs.values if label not in ours.values]),
    )


def _pair(ours: Value, theirs: Value, tolerance: float) -> Pair:
    return Pair(ours, theirs, difference(ours.label, ours.array, theirs.array, tolerance))


def _left(ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float) -> list[Difference]:
    """What both leave, by name; where they share no name and are as many, in order."""
    names = {name: name for name in ours if name in theirs}
    if not names and len(ours) == len(theirs):
        names = dict(zip(ours, theirs, strict=True))
    return [difference(a, ours[a], theirs[b], tolerance) for a, b in names.items()]


def comparison_text(found: Comparison, shown: int = 5) -> str:
    """What there is to say for people: counts, the first differences, the largest, the results."""
    counts = f"{len(found.pairs)} values in both, {len(found.off)} beyond the tolerance"
    alone = f"{len(found.ours_alone)} only in A, {len(found.theirs_alone)} only in B"
    parts = [f"{counts}; {alone}"]
    for title, pairs in (("first", found.off[:shown]), ("largest", found.largest[:shown])):
        parts += [_pairs_text(title, pairs)] if pairs else []
    rows = [("result", "largest difference", "relative", "")]
    rows += [(each.name, *_figures(each), each.why or "agrees") for each in found.left]
    return "\n\n".join([*parts, table(rows)])


def _pairs_text(title: str, pairs: list[Pair]) -> str:
    rows = [(f"{title} differences", "largest", "relative", "")]
    for pair in pairs:
        rows.append((pair.ours.label, *_figures(pair.difference), pair.difference.why))
    ops = [line for pair in pairs for line in _ops(pair)]
    return "\n".join([table(rows), "", *ops])


def _ops(pair: Pair) -> list[str]:
    """How both compute a value; once where that is the same."""
    ours, theirs = (f"{v.op}  {v.source}".rstrip() for v in (pair.ours, pair.theirs))
    return [f"  A and B  {ours}"] if ours == theirs else [f"  A  {ours}", f"  B  {theirs}"]


def _figures(found: Difference) -> tuple[str, str]:
    return f"{found.largest:.3g}", f"{found.relative:.3g}"
