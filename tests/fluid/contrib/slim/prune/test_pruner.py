"""Slices that are pruned, as in release 1.8.5."""

import numpy as np
import pytest

from fluid.contrib.slim.prune import StructurePruner


def sample(*shape: int):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape) % 7 - 3


PRUNER = StructurePruner({"*": 0, "b": 1}, {"*": "l1_norm"})


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("a", sample(5, 3), 0.4), [3, 1]),
        (("b", sample(5, 4), 0.5), [1, 2]),
        (("a", sample(4, 3, 2, 2), 0.3), [3]),
        (("a", sample(5, 4), 0.5, -1), [1, 2]),
    ],
)
def test_smallest_slices(args, expected) -> None:
    assert PRUNER.cal_pruned_idx(*args).tolist() == expected


def test_slices_are_removed_or_zero() -> None:
    x = sample(2, 3, 2)
    assert np.array_equal(PRUNER.prune_tensor(x, [0, 2], 1), x[:, 1:2])
    zeroed = PRUNER.prune_tensor(x, [0, 2], 1, lazy=True)
    assert np.array_equal(zeroed[:, 1], x[:, 1])
    assert not zeroed[:, ::2].any()
    assert x[0, 0, 0] == -3


def test_wrong_use_raises() -> None:
    with pytest.raises(ValueError, match="criterion of 'a' must be 'l1_norm'"):
        StructurePruner({"*": 0}, {"a": "l2"}).cal_pruned_idx("a", sample(2, 2), 0.5)
    with pytest.raises(AssertionError, match="pruning_axis should set"):
        StructurePruner(None, {"*": "l1_norm"}).cal_pruned_idx("a", sample(2, 2), 0.5)
