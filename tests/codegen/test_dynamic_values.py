"""Results of data-dependent sizes own their memory, and are not copied without need."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.dynamic_values import broadcast_shape, fitted, owned, owned_items


def test_views_and_inputs_are_copied() -> None:
    fresh, read = np.ones(3), np.zeros(3)
    assert owned(fresh, [read]) is fresh
    for shared in (read, fresh[:2]):
        copy = owned(shared, [read])
        assert copy.base is None
        assert not np.shares_memory(copy, shared)
    assert owned(None, [read]) is None
    assert owned(2.0, []).shape == ()


def test_items_of_an_input_array_are_owned_already() -> None:
    old, new, read = np.ones(3), np.zeros(2), np.ones(1)
    result = owned_items([old, None, new, read, old[:2], read], [read], [[old]])
    assert result[0] is old
    assert result[1] is None
    assert result[2] is new
    for copy, shared in ((result[3], read), (result[4], old), (result[5], read)):
        assert copy.base is None
        assert not np.shares_memory(copy, shared)


def test_a_result_of_its_own_shape_is_returned() -> None:
    item = np.ones((3, 2), np.float32)
    assert fitted(item, "float32", (3, 2), (3, 2)) is item
    assert fitted(item, "float64", (3, 2), (3, 2)).dtype == np.float64
    assert fitted(item, "float32", (2,), (1, 2)).tolist() == [3, 3]
    assert fitted(np.float32(1), "float32", (2, 3), ()).shape == (2, 3)
    assert fitted(item, "float32", (6,), (3, 2)).shape == (6,)


@pytest.mark.parametrize("shapes", [((3, 2),), ((3, 2), (3, 2)), ((0, 2), (1, 2)), ((2,), (3, 1))])
def test_shapes_are_broadcast_as_in_numpy(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert broadcast_shape(*shapes) == np.broadcast_shapes(*shapes)
