"""Unique values of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type


def unique_in_order(X: Array) -> tuple[Array, Array, Array]:
    """Return the values in order of first occurrence, each element's index in them, and counts."""
    first = first_occurrences(equality_keys(X))
    begins = first == np.arange(len(first))
    values, which = X[begins], (np.cumsum(begins) - 1)[first]
    return values, which, np.bincount(which, minlength=len(values))


def equality_keys(X: Array) -> Array:
    """Return integers that are equal where numbers are: zeros of both signs, and all NaN."""
    if X.dtype.kind != "f":
        return X.astype(np.int64).view(np.uint64)
    values = X.astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def first_occurrences(
    keys: Array,
    factors: tuple[int, ...] = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
) -> Array:
    """Return the index of the first element that is equal to each element of a uint64 vector.

    A key is found by its hash, the upper bits of its product with an odd factor. Keys whose hash is
    that of an earlier key have another one for each of `factors`, and are sorted in the end.

    >>> first_occurrences(np.array([7, 5, 7, 5], np.uint64)).tolist()
    [0, 1, 0, 1]
    """
    first = np.arange(len(keys))
    rest, left = first, keys
    for factor in factors:
        if not len(rest):
            return first
        bits = len(rest).bit_length() + 1
        hashes = (left * np.uint64(factor)) >> np.uint64(64 - bits)
        table = np.empty(1 << bits, rest.dtype)
        table[hashes[::-1]] = rest[::-1]
        candidates = table[hashes]
        differs = keys[candidates] != left
        first[rest] = np.where(differs, rest, candidates)
        rest, left = rest[differs], left[differs]
    order = np.argsort(left, kind="stable")
    begins = np.ones(len(left), np.bool_)
    begins[1:] = left[order][1:] != left[order][:-1]
    first[rest[order]] = rest[order][begins][np.cumsum(begins) - 1]
    return first


def expect_vector(op: str, X: TensorType) -> None:
    """Raise ShapeError unless a tensor is a vector."""
    if X.rank != 1:
        raise ShapeError(f"{op}: X is {X}, expected a vector")


def index_type(op: str, code: int) -> DType:
    """Return the dtype of indices; raise BadAttribute unless it is int32 or int64."""
    dtype = DType.of(code)
    if dtype not in (DType.INT32, DType.INT64):
        raise BadAttribute(f"{op}: 'dtype' is {dtype.text}, expected i32 or i64")
    return dtype


class Unique(OpDef, op="unique"):
    """Out = the values of X in order of first occurrence, Index = each element's index in Out.

    With `is_sorted` (Paddle 2) the values are sorted, Indices are their first occurrences and
    Counts their frequencies; with `axis` whole slices are compared. Reference: unique_op.h.
    """

    no_kernel_reason = "the number of values is data-dependent"

    lod_source = ""

    X = reads(no_grad=True)
    Out = writes()
    Index = writes(optional=True)
    Indices = writes(optional=True)
    Counts = writes(optional=True)
    dtype = attr(DType.INT64.code)
    is_sorted = attr(False)
    return_index = attr(False)
    return_inverse = attr(False)
    return_counts = attr(False)
    axis = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        dtype = index_type(self.kind, self.dtype)
        if not self.is_sorted:
            expect_vector(self.kind, X)
            return {"Out": X.with_shape([UNKNOWN]), "Index": X.with_dtype(dtype)}
        sizes = [UNKNOWN if not self.axis or a == self.axis[0] % X.rank else n
                 for a, n in enumerate(X.shape)]  # fmt: skip
        output = X.with_shape(sizes if self.axis else [UNKNOWN])
        index_vector = TensorType(dtype, (UNKNOWN,))
        which = (X.shape[self.axis[0]],) if self.axis else (X.numel,)
        index = TensorType(dtype, which)
        return {"Out": output, "Index": index, "Indices": index_vector, "Counts": index_vector}

    def numpy(self, X: Array) -> dict[str, Array]:
        dtype = element_type(self.dtype)
        if not self.is_sorted:
            Out, which, _ = unique_in_order(X)
            return {"Out": Out, "Index": which.astype(dtype)}
        axis: Any = self.axis[0] if self.axis else None
        Out, first, which, counts = np.unique(
            X, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        return {
            "Out": Out,
            "Index": which.reshape(-1).astype(dtype),
            "Indices": first.astype(dtype),
            "Counts": counts.astype(dtype),
        }


class UniqueWithCounts(OpDef, op="unique_with_counts"):
    """`unique`, with Count = the frequency of each value. Reference: unique_with_counts_op.h."""

    no_kernel_reason = "the number of values is data-dependent"

    lod_source = ""

    X = reads(no_grad=True)
    Out = writes()
    Index = writes()
    Count = writes()
    dtype = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        dtype = index_type(self.kind, self.dtype)
        expect_vector(self.kind, X)
        output = X.with_shape([UNKNOWN])
        return {"Out": output, "Index": X.with_dtype(dtype), "Count": output.with_dtype(dtype)}

    def numpy(self, X: Array) -> dict[str, Array]:
        dtype = element_type(self.dtype)
        Out, which, counts = unique_in_order(X)
        return {"Out": Out, "Index": which.astype(dtype), "Count": counts.astype(dtype)}
