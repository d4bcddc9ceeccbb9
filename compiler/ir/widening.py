"""Float16 outside, float32 inside: how ops that sum up compute with half precision.

Numbers are kept in two bytes; a product or an average of them is made in float32 and rounded once,
as the reference's kernels and those of devices do. NumPy is many times faster that way, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from compiler.ir.types import DType, TensorType


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply to the value of a slot: to each of a list, to none of an empty one."""
    if isinstance(value, list):
        return [function(item) for item in cast("list[Any]", value)]
    return None if value is None else function(value)


def widened(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values by slot with float32 for float16 arrays; the mapping itself where there are none.

    >>> widened({"X": np.ones(2, np.float16)})["X"].dtype.name
    'float32'
    """
    found = {slot: mapped(_wide, value) for slot, value in values.items()}
    return found if any(map(_changed, found.values(), values.values())) else values


def narrowed(results: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Results by slot in the element types they are declared in."""
    return {slot: _rounded(value, types.get(slot)) for slot, value in results.items()}


def _wide(value: Any) -> Any:
    is_half = getattr(value, "dtype", None) == np.float16
    return value.astype(np.float32) if is_half else value


def _changed(new: Any, old: Any) -> bool:
    if isinstance(old, list):
        return any(map(_changed, new, cast("list[Any]", old)))
    return new is not old


def _rounded(value: Any, type: Any) -> Any:
    if isinstance(type, list):
        pairs = zip(value, cast("list[Any]", type), strict=False)
        return [_rounded(each, wanted) for each, wanted in pairs]
    if not isinstance(type, TensorType) or type.dtype is not DType.FP16 or value is None:
        return value
    with np.errstate(over="ignore"):  # beyond float16 lies infinity
        return np.asarray(value).astype(np.float16)
