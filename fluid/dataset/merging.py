"""Merging of samples with the same id. Source: `MergeByInsId` of `data_set.cc`, release 1.8.5."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from compiler.ir.types import Array
from fluid.dataset.multi_slot import NEAR_ZERO, Row, Sample, SampleSlot

__all__ = ["merged_by_id"]


def merged_by_id(samples: Sequence[Sample], size: int, slots: Sequence[SampleSlot]) -> list[Sample]:
    """Merge the samples of each id, in the order of ids; warns of those that are dropped.

    An id is dropped unless it has `size` samples (any number for 0), and if two of its samples have
    values in the same slot of any length. Of dense slots the last value that is not zero is taken.
    """
    merged: list[Sample] = []
    for key, group in groupby(sorted(samples, key=_id), _id):
        rows = [sample.row for sample in group]
        row = None if size and len(rows) != size else _merged(rows, slots)
        if row is not None:
            merged.append(Sample(row, key))
        else:
            warnings.warn(
                f"{len(rows)} samples of id {key!r} are dropped: not {size or 'mergeable'} samples "
                "of one id with at most one value for each slot",
                stacklevel=2,
            )
    return merged


def _id(sample: Sample) -> str:
    return sample.id


def _merged(rows: Sequence[Row], slots: Sequence[SampleSlot]) -> Row | None:
    """The merged values; None if two rows have values in the same slot of any length."""
    merged = Row()
    for column, slot in zip(zip(*rows, strict=True), slots, strict=True):
        present = [values for values in column if _has_value(values)]
        if slot.shape is None and len(present) > 1:
            return None
        merged.append(present[-1] if present else column[0])
    return merged


def _has_value(values: Array) -> bool:
    return bool((np.abs(values) >= NEAR_ZERO).any() if values.dtype.kind == "f" else values.any())
