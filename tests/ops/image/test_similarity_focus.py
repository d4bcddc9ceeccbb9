"""`similarity_focus` takes one maximum after the other, all tables at once."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.types import Array
from compiler.ops.image.similarity_focus import ascending_keys, select_row_column_maxima


def one_by_one(table: Array) -> Array:
    """The definition: positions by descending number, each if its row and column are free."""
    chosen = np.zeros(table.shape, np.bool_)
    for position in np.argsort(-table, axis=None, kind="stable"):
        row, column = divmod(int(position), table.shape[1])
        if not chosen[row].any() and not chosen[:, column].any():
            chosen[row, column] = True
    return chosen


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 4, 9), (1, 1, 1), (2, 0, 3), (0, 2, 2)])
def test_all_tables_at_once_are_one_after_the_other(
    shape: tuple[int, int, int], dtype: type
) -> None:
    """Few different numbers, so that many are equal."""
    tables = np.random.default_rng(3).integers(-2, 3, shape).astype(dtype)
    expected = [one_by_one(table) for table in tables]
    np.testing.assert_array_equal(select_row_column_maxima(tables), np.reshape(expected, shape))


def test_the_least_numbers_are_taken_last() -> None:
    least = np.finfo(np.float32).min
    tables = np.array([[[np.nan, -np.inf], [least, -np.inf]], [[-0.0, 1], [0, np.inf]]], "float32")
    chosen = select_row_column_maxima(tables)
    np.testing.assert_array_equal(chosen[0], [[False, True], [True, False]])
    np.testing.assert_array_equal(chosen[1], [[True, False], [False, True]])


def test_keys_are_in_the_order_of_numbers() -> None:
    values = np.random.default_rng(5).standard_normal(1000).astype(np.float32)
    keys = ascending_keys(values)
    np.testing.assert_array_equal(np.argsort(keys, kind="stable"), np.argsort(values))
