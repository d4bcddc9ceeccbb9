"""Comparison of two programs, or two stages of one, value by value.

Values are matched by name. Values that only one program computes are counted, not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.debugging.difference import Difference, difference
from compiler.debugging.values import RunValue, RunValues
from compiler.report.table import table
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Pair:
    """A value of both programs: its op in each, and the difference."""

    ours: RunValue
    theirs: RunValue
    difference: Difference


@dataclass(frozen=True)
class Comparison:
    """Comparison of two programs: the common values in the order of the first, the outputs of both
    (results and state), and the labels of values that only one of them computes.
    """

    pairs: tuple[Pair, ...]
    left: tuple[Difference, ...]
    ours_alone: tuple[str, ...]
    theirs_alone: tuple[str, ...]

    @property
    def off(self) -> list[Pair]:
        """Values beyond the tolerance, in order."""
        return [pair for pair in self.pairs if pair.difference.why]

    @property
    def largest(self) -> list[Pair]:
        """Values beyond the tolerance, largest relative difference first."""
        return sorted(self.off, key=lambda pair: -pair.difference.relative)

    @property
    def agrees(self) -> bool:
        """Whether all common outputs are within the tolerance."""
        return not any(mismatch.why for mismatch in self.left)


def compare(ours: RunValues, theirs: RunValues, tolerance: float = 1e-4) -> Comparison:
    """Compare the values of two graphs.

    Floats may differ by `tolerance` times the largest magnitude of the second; all else must be
    equal.
    """
    shared = [label for label in ours.values if label in theirs.values]
    pairs = [_pair(ours.values[label], theirs.values[label], tolerance) for label in shared]
    return Comparison(
        tuple(pairs),
        tuple(_left(ours.left, theirs.left, tolerance)),
        tuple([label for label in ours.values if label not in theirs.values]),
        tuple([label for label in theirs.values if label not in ours.values]),
    )


def _pair(ours: RunValue, theirs: RunValue, tolerance: float) -> Pair:
    return Pair(ours, theirs, difference(ours.label, ours.array, theirs.array, tolerance))


def _left(ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float) -> list[Difference]:
    """Compare outputs by name, or in order if no name is common and their number is equal."""
    names = {name: name for name in ours if name in theirs}
    if not names and len(ours) == len(theirs):
        names = dict(zip(ours, theirs, strict=True))
    return [difference(a, ours[a], theirs[b], tolerance) for a, b in names.items()]


def comparison_text(found: Comparison, shown: int = 5) -> str:
    """Return the comparison as text: counts, first and largest differences, outputs."""
    counts = f"{len(found.pairs)} values in both, {len(found.off)} beyond the tolerance"
    alone = f"{len(found.ours_alone)} only in A, {len(found.theirs_alone)} only in B"
    parts = [f"{counts}; {alone}"]
    for title, pairs in (("first", found.off[:shown]), ("largest", found.largest[:shown])):
        parts += [_pairs_text(title, pairs)] if pairs else []
    rows = [("result", "largest difference", "relative", "")]
    rows += [
        (mismatch.name, *_figures(mismatch), mismatch.why or "agrees") for mismatch in found.left
    ]
    return "\n\n".join([*parts, table(rows)])


def _pairs_text(title: str, pairs: list[Pair]) -> str:
    rows = [(f"{title} differences", "largest", "relative", "")]
    for pair in pairs:
        rows.append((pair.ours.label, *_figures(pair.difference), pair.difference.why))
    ops = [line for pair in pairs for line in _ops(pair)]
    return "\n".join([table(rows), "", *ops])


def _ops(pair: Pair) -> list[str]:
    """Return the op of a value in both programs, once if it is the same."""
    ours, theirs = (f"{v.op}  {v.source}".rstrip() for v in (pair.ours, pair.theirs))
    return [f"  A and B  {ours}"] if ours == theirs else [f"  A  {ours}", f"  B  {theirs}"]


def _figures(found: Difference) -> tuple[str, str]:
    return f"{found.largest:.3g}", f"{found.relative:.3g}"
