"""State that passes add: copies of views."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from compiler.passes.state import contiguous_copy

SHAPES = [
    (300, 300),
    (70, 40, 5, 5),
    (1, 1, 300, 400),
    (1000, 100),
    (65537, 1),
    (2, 2, 2, 130, 129),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_copies_of_views_are_contiguous_and_equal(shape: tuple[int, ...]) -> None:
    array = np.random.RandomState(0).rand(*shape).astype("float32")
    views = [array.transpose(order) for order in permutations(range(array.ndim))]
    views += [array[::-1], array.T[::-1], array[..., ::2], np.broadcast_to(array[:1], (3, *shape))]
    for view in views:
        copy = contiguous_copy(view)
        assert copy.flags.c_contiguous and copy.base is None
        np.testing.assert_array_equal(copy, view)


def test_small_and_empty_arrays_are_copied() -> None:
    for array in (np.array(3.0), np.zeros((0, 3)), np.ones((2, 3)).T):
        copy = contiguous_copy(array)
        assert copy.shape == array.shape and copy is not array
