"""`fluid infer --check`: compare results with those of another run."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.debugging.difference import Difference, difference
from compiler.ir.types import Array
from compiler.report.table import table
from fluid.cli.model import CommandError

__all__ = ["compare", "compared"]


def compare(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float
) -> list[Difference]:
    """Compare each result with the one of the same name, or by position where no name is shared.

    Floats may differ by `tolerance` times the largest magnitude of the other result, NaN equals
    NaN; integers, booleans and LoD offsets must be equal. Raises CommandError where `theirs` lacks
    a result.
    """
    return [
        difference(name, ours[name], theirs[other], tolerance)
        for name, other in _paired(ours, theirs).items()
    ]


def _paired(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, str]:
    """Map each of our names to the matching name of the other run."""
    if not ours.keys() & theirs.keys() and len(ours) == len(theirs):
        return dict(zip(ours, theirs, strict=True))
    for name in ours:
        if name not in theirs:
            have = ", ".join(theirs) or "nothing"
            raise CommandError(f"--check: {name!r} is missing; there is {have}")
    return {name: name for name in ours}


def compared(found: list[Difference], against: str) -> str:
    """Format the differences as a table.

    >>> print(compared([Difference("y", 1e-6, 2e-6, "")], "b.npz"))
    against b.npz  largest difference  relative
      y                         1e-06     2e-06  agrees
    """
    rows = [(f"against {against}", "largest difference", "relative", "")]
    for comparison in found:
        numbers = f"{comparison.largest:.3g}", f"{comparison.relative:.3g}"
        rows.append((f"  {comparison.name}", *numbers, comparison.why or "agrees"))
    return table(rows, indent="")
