"""`unique` finds first occurrences by hashes; keys that share those of others are sorted."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.types import Array
from compiler.ops.shape.unique import first_occurrences, unique_in_order

DTYPES = (np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64)


def expected(values: Array) -> tuple[list[float], list[int], list[int]]:
    """Values in order of first occurrence, the place of each element, and counts."""
    places: dict[float, int] = {}
    which = [places.setdefault(value, len(places)) for value in values.tolist()]
    return list(places), which, [which.count(place) for place in places.values()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 2, 40])
@pytest.mark.parametrize("step", [1, 100])
def test_values_in_order_of_first_occurrence(dtype: type, count: int, step: int) -> None:
    drawn = np.random.default_rng(count).integers(0, 7, count) * step - 50
    values = drawn.astype(np.int64).astype(dtype)
    for found, want in zip(unique_in_order(values), expected(values), strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_the_widest_integers(dtype: type) -> None:
    limits = np.iinfo(dtype)
    values = np.array([limits.max, limits.min, 0, limits.min] * 40, dtype)
    found, which, counts = unique_in_order(values)
    np.testing.assert_array_equal(found, [limits.max, limits.min, 0])
    np.testing.assert_array_equal(which, [0, 1, 2, 1] * 40)
    np.testing.assert_array_equal(counts, [40, 80, 40])


def test_zeros_are_equal_and_so_are_all_nan() -> None:
    values, which, counts = unique_in_order(np.array([np.nan, 0.0, -0.0, np.nan, 2.0]))
    np.testing.assert_array_equal(values, [np.nan, 0.0, 2.0])
    np.testing.assert_array_equal(which, [0, 1, 1, 0, 2])
    np.testing.assert_array_equal(counts, [2, 2, 1])


@pytest.mark.parametrize("factors", [(), (0,), (0, 1), (0x9E3779B97F4A7C15,)])
def test_keys_of_equal_hashes(factors: tuple[int, ...]) -> None:
    """With the factor 0 all keys have one hash, with 1 small keys have."""
    keys = np.random.default_rng(1).integers(0, 50, 300).astype(np.uint64)
    keys = np.concatenate([keys, keys << np.uint64(58)])
    _, index, which = np.unique(keys, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first_occurrences(keys, factors), index[which])
