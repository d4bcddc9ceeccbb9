"""Norms of what a training step computes, and of its distance to the same step elsewhere.

All norms are root mean squares of whole arrays, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRADIENT = "@GRAD"
LEAST_SHARE = 1e-3
"""The least norm of an array, as a share of the largest one in its group."""

Array = NDArray[Any]


@dataclass
class Norms:
    """Norms by the names of variables: of values and updates in float64, and of differences.

    `errors[side]` are differences to float64, `apart[side, other]` those between two sides.
    """

    values: dict[str, float] = field(default_factory=dict[str, float])
    updates: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    apart: dict[tuple[str, str], dict[str, float]] = field(
        default_factory=dict[tuple[str, str], dict[str, float]]
    )

    def relative_errors(self, side: str) -> dict[str, float]:
        """Differences of a side to float64 ÷ the updates; of gradients ÷ the gradients."""
        return _divided(self.errors[side], self.updates)

    def relative_differences(self, side: str, other: str) -> dict[str, float]:
        """Differences between two sides ÷ the values."""
        return _divided(self.apart[side, other], self.values)


def norms(
    files: Mapping[str, Path], state: Path, exact: str, pairs: Iterable[tuple[str, str]]
) -> Norms:
    """The norms of one step from files of arrays, one file a side.

    `state` has the variables before the step, `exact` is the side that computed in float64, and
    `pairs` are the sides between which differences are taken. Arrays are read one at a time.
    """
    pairs, result = list(pairs), Norms()
    opened = {side: np.load(path) for side, path in files.items()}
    with np.load(state) as before:
        for name in opened[exact].files:
            arrays = {side: file[name] for side, file in opened.items()}
            wanted = arrays[exact]
            result.values[name] = rms(wanted)
            result.updates[name] = apart(wanted, before[name]) if name in before else rms(wanted)
            for side, array in arrays.items():
                result.errors.setdefault(side, {})[name] = apart(array, wanted)
            for pair in pairs:
                norms_of_pair = apart(arrays[pair[0]], arrays[pair[1]])
                result.apart.setdefault(pair, {})[name] = norms_of_pair
    for file in opened.values():
        file.close()
    return result


def rms(array: Array) -> float:
    """The root mean square of an array; 0 if it is empty.

    >>> rms(np.float32([3, -3]))
    3.0
    """
    flat = array.astype(np.float64, copy=False).ravel()
    return math.sqrt(float(flat @ flat) / max(flat.size, 1))


def apart(a: Array, b: Array) -> float:
    """The root mean square of a difference; infinite if sizes differ or a number is not finite."""
    if a.size != b.size:
        return math.inf
    value = rms(np.subtract(a.reshape(b.shape), b, dtype=np.float64))
    return value if math.isfinite(value) else math.inf


def owner(name: str, names: Iterable[str]) -> str:
    """The parameter that a gradient or a variable of the optimizer belongs to, or `name` itself.

    >>> owner("fc_0.b_0_velocity_0", ["fc_0.b_0", "fc_0.b_0@GRAD", "fc_0.b_0_velocity_0"])
    'fc_0.b_0'
    """
    owners = [
        candidate for candidate in names if name.startswith((candidate + GRADIENT, candidate + "_"))
    ]
    return min(owners, key=len, default=name)


def group(name: str, names: Iterable[str]) -> tuple[str, str]:
    """The layer of a variable, and what it is of its owner: its gradient, its velocity, ….

    >>> group("fc_0.b_0_velocity_0", ["fc_0.b_0", "fc_0.w_0"])
    ('fc_0', '_velocity_0')
    """
    parameter = owner(name, names)
    return parameter.rpartition(".")[0] or parameter, name[len(parameter) :]


def _divided(differences: Mapping[str, float], scales: Mapping[str, float]) -> dict[str, float]:
    """Differences relative to scales, which are at least a share of the largest in their group."""
    groups = {name: group(name, scales) for name in scales}
    largest: dict[tuple[str, str], float] = {}
    for name, scale in scales.items():
        largest[groups[name]] = max(largest.get(groups[name], 0.0), scale)
    least = {name: LEAST_SHARE * largest[groups[name]] for name in scales}
    return {
        name: _ratio(difference, max(scales[name], least[name]))
        for name, difference in differences.items()
    }


def _ratio(difference: float, scale: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / scale if scale else math.inf
