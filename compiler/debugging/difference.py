"""The difference of an array from a reference: one measure for every command."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.types import Array, is_floating
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Difference:
    """Difference of a value from its reference.

    `largest` is the largest absolute difference, `relative` the same divided by the largest
    magnitude of the reference; `why` describes what exceeds the tolerance, or is empty.
    """

    name: str
    largest: float
    relative: float
    why: str


NEAR_ZERO = 1e-2
"""What is added to the largest magnitude of an array: one whose numbers are all near 0, such as
probabilities that a sigmoid rounds to it, has the rounding error of what it was computed from."""


def difference(name: str, ours: Any, theirs: Any, tolerance: float) -> Difference:
    """Compare two arrays, or two lists of them.

    Floats may differ by `tolerance` times the largest magnitude of the second array plus
    `NEAR_ZERO`, and NaN equals NaN; integers, booleans and offsets must be equal.

    >>> difference("y", np.array([1.0, 2.5]), np.array([1.0, 2.0]), 1e-4)
    Difference(name='y', largest=0.5, relative=0.25, why='1 of 2 beyond 0.0001')
    """
    if isinstance(ours, list) or isinstance(theirs, list):
        return _lists(name, ours, theirs, tolerance)
    if ours.shape != theirs.shape:
        shapes = f"got {list(ours.shape)}, expected {list(theirs.shape)}"
        return Difference(name, np.inf, np.inf, f"shapes differ: {shapes}")
    if ours.dtype.kind != theirs.dtype.kind:
        return Difference(
            name, np.inf, np.inf, f"dtypes differ: got {ours.dtype}, expected {theirs.dtype}"
        )
    if not ours.size:
        return Difference(name, 0.0, 0.0, "")
    if not is_floating(ours.dtype):
        return _exact(name, ours, theirs)
    return _close(name, ours.astype(np.float64), theirs.astype(np.float64), tolerance)


def _lists(name: str, ours: Any, theirs: Any, tolerance: float) -> Difference:
    """Compare tensor arrays item by item; return the largest difference."""
    if len(ours) != len(theirs):
        why = f"lengths differ: got {len(ours)} tensors, expected {len(theirs)}"
        return Difference(name, np.inf, np.inf, why)
    differences = (difference(name, a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    none = Difference(name, 0.0, 0.0, "")
    return max([none, *differences], key=lambda found: (bool(found.why), found.relative))


def _exact(name: str, ours: Array, theirs: Array) -> Difference:
    differing = int(np.count_nonzero(ours != theirs))
    away = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    largest = float(np.abs(theirs.astype(np.float64)).max()) or 1.0
    why = f"{differing} of {ours.size} differ" if differing else ""
    return Difference(name, float(away.max()), float(away.max()) / largest, why)


def _close(name: str, ours: Array, theirs: Array, tolerance: float) -> Difference:
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    away = np.where(same, 0.0, np.abs(np.where(same, 0.0, ours) - np.where(same, 0.0, theirs)))
    away = np.where(np.isnan(away), np.inf, away)
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max(initial=0.0)) or 1.0
    beyond = int(np.count_nonzero(away > tolerance * (scale + NEAR_ZERO)))
    largest = float(away.max())
    why = f"{beyond} of {ours.size} beyond {tolerance:g}" if beyond else ""
    return Difference(name, largest, largest / scale, why)
