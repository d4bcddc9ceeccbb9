"""Arrays of files as the dtypes that a model declares of its feeds."""

from __future__ import annotations

import warnings

import numpy as np

from compiler.ir.types import Array
from fluid.cli.model import CommandError

__all__ = ["as_declared"]

WHOLE, KINDS = "iu", "biuf"
"""The kinds of NumPy's dtypes that hold whole numbers, and those that are converted."""


def as_declared(array: Array, dtype: np.dtype[np.generic], feed: str, where: str) -> Array:
    """Return the array of a file `where` in the dtype that `feed` declares.

    What changes more than the width, or makes numbers narrower, warns. Raises CommandError for
    what is no number, and for values that the dtype cannot hold: fractions or NaN as integers, and
    numbers beyond its range.
    """
    if array.dtype == dtype:
        return array
    conversion = f"{where} holds {array.dtype}, feed {feed!r} takes {dtype}"
    if not _is_number(array.dtype) or not _is_number(dtype):
        raise CommandError(f"{conversion}: save numbers of that dtype")
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if (obstacle := _obstacle(array, result)) is not None:
        raise CommandError(f"{conversion}, which cannot hold {obstacle}")
    if array.dtype.kind != dtype.kind or not np.can_cast(array.dtype, dtype):
        warnings.warn(f"{conversion}: the numbers are converted", stacklevel=2)
    return result


def _is_number(dtype: np.dtype[np.generic]) -> bool:
    """Whether a dtype has numbers; those of bfloat16 are no kind of NumPy's own."""
    return dtype.kind in KINDS or dtype.name == "bfloat16"


def _obstacle(given: Array, result: Array) -> str | None:
    """The first number that a conversion loses, or None; rounding of fractions loses none."""
    if result.dtype.kind in WHOLE + "b":
        lost = given != result
    else:
        lost = np.isfinite(given) & ~np.isfinite(result)
    return str(given[lost].flat[0]) if lost.any() else None
