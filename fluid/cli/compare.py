"""`fluid infer --check`: what came out beside what another run has written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import Array
from compiler.report.table import table
from fluid.cli.model import CommandError

__all__ = ["Comparison", "compare", "compared"]


@dataclass(frozen=True)
class Comparison:
    """How far a result is from another's.

    `largest` is the largest absolute difference, `relative` the same by the largest number there,
    `why` says what is beyond the tolerance, or nothing.
    """

    name: str
    largest: float
    relative: float
    why: str


def compare(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float
) -> list[Comparison]:
    """A comparison for each result, by name; by order where no name is shared.

    Floats may differ by `tolerance` times the largest number of the other result, NaN is like NaN;
    whole numbers, truth values and offsets must be equal. Raises CommandError where the other has
    not all results.
    """
    return [
        _compared(name, ours[name], theirs[other], tolerance)
        for name, other in _paired(ours, theirs).items()
    ]


def _paired(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, str]:
    """The name the other has for each of our results."""
    if not ours.keys() & theirs.keys() and len(ours) == len(theirs):
        return dict(zip(ours, theirs, strict=True))
    for name in ours:
        if name not in theirs:
            have = ", ".join(theirs) or "nothing"
            raise CommandError(f"--check: {name!r} is not there; there is {have}")
    return {name: name for name in ours}


def _compared(name: str, ours: Array, theirs: Array, tolerance: float) -> Comparison:
    if ours.shape != theirs.shape:
        shapes = f"{list(ours.shape)} here, {list(theirs.shape)} there"
        return Comparison(name, np.inf, np.inf, f"other shapes: {shapes}")
    if ours.dtype.kind != theirs.dtype.kind:
        return Comparison(name, np.inf, np.inf, f"{ours.dtype} here, {theirs.dtype} there")
    if not ours.size:
        return Comparison(name, 0.0, 0.0, "")
    if ours.dtype.kind != "f":
        return _exact(name, ours, theirs)
    return _close(name, ours.astype(np.float64), theirs.astype(np.float64), tolerance)


def _exact(name: str, ours: Array, theirs: Array) -> Comparison:
    differing = int(np.count_nonzero(ours != theirs))
    away = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    largest = float(np.abs(theirs.astype(np.float64)).max()) or 1.0
    why = f"{differing} of {ours.size} differ" if differing else ""
    return Comparison(name, float(away.max()), float(away.max()) / largest, why)


def _close(name: str, ours: Array, theirs: Array, tolerance: float) -> Comparison:
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    away = np.where(same, 0.0, np.abs(np.where(same, 0.0, ours) - np.where(same, 0.0, theirs)))
    away = np.where(np.isnan(away), np.inf, away)
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max(initial=0.0)) or 1.0
    beyond = int(np.count_nonzero(away > tolerance * scale))
    largest = float(away.max())
    why = f"{beyond} of {ours.size} beyond {tolerance:g}" if beyond else ""
    return Comparison(name, largest, largest / scale, why)


def compared(found: list[Comparison], against: str) -> str:
    """A table for people.

    >>> print(compared([Comparison("y", 1e-6, 2e-6, "")], "b.npz"))
    against b.npz  largest difference  relative
      y                         1e-06     2e-06  agrees
    """
    rows = [(f"against {against}", "largest difference", "relative", "")]
    for each in found:
        numbers = f"{each.largest:.3g}", f"{each.relative:.3g}"
        rows.append((f"  {each.name}", *numbers, each.why or "agrees"))
    return table(rows, indent="")
