"""Half-precision arithmetic: upcast to float32, compute, cast the results to half.

Values are stored in two bytes; a product or an average is computed in float32 and rounded once, as
the reference's kernels and those of devices do. In NumPy this is also many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from compiler.ir.types import HALVES, DType, TensorType


def map_value(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the value of a slot: to each item of a list; None stays None."""
    if isinstance(value, list):
        return [function(item) for item in cast("list[Any]", value)]
    return None if value is None else function(value)


def upcast_to_fp32(
    values: Mapping[str, Any], dtypes: Collection[DType] = HALVES
) -> Mapping[str, Any]:
    """Upcast arrays of these dtypes to float32; returns the mapping itself if there are none.

    >>> upcast_to_fp32({"X": np.ones(2, np.float16)})["X"].dtype.name
    'float32'
    """
    kinds = [dtype.numpy for dtype in dtypes if dtype.is_in_numpy]
    upcasted = {slot: map_value(partial(_wide, kinds), value) for slot, value in values.items()}
    return upcasted if any(map(_changed, upcasted.values(), values.values())) else values


def cast_results(results: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Cast results by slot to half precision where it is declared."""
    return {slot: _rounded(value, types.get(slot)) for slot, value in results.items()}


def _wide(kinds: Sequence[np.dtype[Any]], value: Any) -> Any:
    return value.astype(np.float32) if getattr(value, "dtype", None) in kinds else value


def _changed(new: Any, old: Any) -> bool:
    if isinstance(old, list):
        return any(map(_changed, new, cast("list[Any]", old)))
    return new is not old


def _rounded(value: Any, type: Any) -> Any:
    if isinstance(type, list):
        pairs = zip(value, cast("list[Any]", type), strict=False)
        return [_rounded(item, wanted) for item, wanted in pairs]
    if not isinstance(type, TensorType) or type.dtype not in HALVES or value is None:
        return value
    with np.errstate(over="ignore"):  # overflow to infinity is intended
        return np.asarray(value).astype(type.dtype.numpy)
