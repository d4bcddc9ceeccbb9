"""Overlaps of many boxes: computed in blocks, each as if it were computed by itself."""

import numpy as np
import pytest

from compiler.ops.detection.box_coder import BLOCK, overlaps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(1, BLOCK + 1), (3, BLOCK), (BLOCK + 1, 2), (0, 5)])
def test_blocks_have_the_overlaps_of_each_box(rows: int, columns: int, dtype: str) -> None:
    random = np.random.default_rng(0)
    one, other = (random.random((count, 4)).astype(dtype) for count in (rows, columns))
    result = overlaps(one, other, 1.0)
    assert (result.shape, result.dtype) == ((rows, columns), np.dtype(dtype))
    for column in {0, 1, columns // 3, columns - 2, columns - 1}:
        assert np.array_equal(result[:, [column]], overlaps(one, other[[column]], 1.0))
