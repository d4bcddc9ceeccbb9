"""Rows and sequences of a feed are divided evenly among devices, or by the rule of 1.8."""

import numpy as np
import pytest

import fluid
from fluid.core import EnforceNotMet
from fluid.data_parallel.merge_fetches import merged, unmerged
from fluid.data_parallel.split_feeds import split_feed
from fluid.running.feeds import feed_arrays
from runtime.tensors.lod_tensor import LoDTensor

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32).reshape(count, 1)


def program() -> fluid.Program:
    fluid.data("x", [None, 1])
    fluid.data("words", [None, 1], "int64", lod_level=1)
    rate = fluid.layers.create_global_var([1], 1.0, "float32", persistable=True, name="rate")
    assert rate.persistable
    return fluid.default_main_program()


@pytest.mark.parametrize(
    ("count", "devices", "shares"),
    [(3, 2, [1, 2]), (7, 4, [1, 2, 2, 2]), (5, 4, [1, 1, 1, 2]), (8, 2, [4, 4]), (4, 1, [4])],
)
def test_shares_differ_by_one_row_at_most(count: int, devices: int, shares: list[int]) -> None:
    result = split_feed(program(), {"x": rows(count)}, devices)
    assert [len(each["x"]) for each in result] == shares
    assert np.array_equal(np.concatenate([each["x"] for each in result]), rows(count))


def test_fewer_rows_than_devices() -> None:
    match = r"number\(2\) of samples\[x\] of current batch is less than the count\(3\) of devices"
    with pytest.raises(EnforceNotMet, match=match):
        split_feed(program(), {"x": rows(2)}, 3)
    with pytest.raises(EnforceNotMet, match=r"number\(0\)"):
        split_feed(program(), {"x": rows(0)}, 3, partial=True)
    assert len(split_feed(program(), {"x": rows(2)}, 3, partial=True)) == 2


def test_sequences_are_divided_whole() -> None:
    created = program()
    tensor = fluid.create_lod_tensor(rows(6).astype("int64"), [[1, 3, 2]], CPU)
    result = split_feed(created, feed_arrays(created, {"words": tensor}), 2)
    assert [each["words"].ravel().tolist() for each in result] == [[0], [1, 2, 3, 4, 5]]
    assert [each["words@LOD0"].tolist() for each in result] == [[0, 1], [0, 3, 5]]


def test_sequences_of_sequences() -> None:
    created = program()
    tensor = fluid.create_lod_tensor(rows(6).astype("int64"), [[2, 1], [1, 2, 3]], CPU)
    result = split_feed(created, feed_arrays(created, {"words": tensor}), 2)
    assert [each["words@LOD0"].tolist() for each in result] == [[0, 2], [0, 1]]
    assert [each["words@LOD1"].tolist() for each in result] == [[0, 1, 3], [0, 3]]
    assert [each["words"].ravel().tolist() for each in result] == [[0, 1, 2], [3, 4, 5]]


def test_persistable_feeds() -> None:
    created = program()
    one, two = np.ones(1, "float32"), np.array([1, 2], "float32")
    both = split_feed(created, {"x": rows(4), "rate": one}, 2)
    assert [each["rate"].tolist() for each in both] == [[1], [1]]
    each_one = split_feed(created, {"x": rows(4), "rate": two}, 2)
    assert [each["rate"].tolist() for each in each_one] == [[1], [2]]
    three = split_feed(created, {"x": rows(4), "rate": np.array([1, 2, 3], "float32")}, 2)
    assert [each["rate"].tolist() for each in three] == [[1], [2, 3]]
    with pytest.raises(EnforceNotMet, match="rate is a persistable variable: feed one row"):
        split_feed(created, {"x": rows(4), "rate": two}, 4)


def test_values_are_joined_in_the_order_of_devices() -> None:
    results = [[rows(2), np.float32(1)], [rows(3), np.float32(2)]]
    whole, numbers = merged(["x", "loss"], results)
    assert whole.ravel().tolist() == [0, 1, 0, 1, 2] and numbers.tolist() == [1, 2]
    assert [len(each) for each in unmerged(results)[0]] == [2, 3]


def test_sequences_are_joined_with_their_offsets() -> None:
    parts = []
    for lengths in ([[1], [2]], [[2], [1, 2]]):
        tensor = LoDTensor(rows(sum(lengths[1])))
        tensor.set_recursive_sequence_lengths(lengths)
        parts.append([tensor])
    (whole,) = merged(["words"], parts)
    assert whole.lod() == [[0, 1, 3], [0, 2, 3, 5]] and whole.shape() == [5, 1]


def test_values_that_cannot_be_joined() -> None:
    with pytest.raises(EnforceNotMet, match=r"'padded' has the shapes \(2, 3\), \(2, 4\)"):
        merged(["padded"], [[np.ones((2, 3))], [np.ones((2, 4))]])
