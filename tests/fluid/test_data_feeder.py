"""DataFeeder: samples of a batch become the tensors of a feed."""

import re
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_feeder import DataFeeder

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


def feeder() -> DataFeeder:
    fluid.layers.data("image", [2, 2])
    label = fluid.layers.data("label", [1], dtype="int64")
    return DataFeeder(["image", label], CPU)


def test_a_batch() -> None:
    batch = [(np.arange(4.0) + i, i) for i in range(3)]
    found = feeder().feed(batch)
    image, label = np.array(found["image"]), np.array(found["label"])
    assert (image.shape, image.dtype) == ((3, 2, 2), np.float32)
    assert image[1].ravel().tolist() == [1, 2, 3, 4]
    assert (label.tolist(), label.dtype) == ([[0], [1], [2]], np.int64)


def test_sequences_are_joined() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    found = DataFeeder([words], CPU).feed([([1, 2, 3],), ([4],)])["words"]
    assert np.array(found).ravel().tolist() == [1, 2, 3, 4]
    assert found.recursive_sequence_lengths() == [[3, 1]]


def test_the_feed_runs() -> None:
    made = feeder()
    mean = fluid.layers.mean(fluid.layers.cast(made.variables[1], "float32"))
    feed = made.feed([([0.0] * 4, 1), ([0.0] * 4, 2)])
    assert fluid.Executor(CPU).run(feed=feed, fetch_list=[mean])[0].tolist() == [1.5]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([([0.0] * 4,)], "a sample has 1 fields, but 2 variables are fed"),
        (
            [([0.0] * 3, 1)],
            "'image' is fed values of shape (1, 3), which do not make up (-1, 2, 2)",
        ),
    ],
)
def test_batches_that_do_not_fit(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        feeder().feed(batch)


def test_what_is_fed_are_variables() -> None:
    with pytest.raises(TypeError, match="'feed_list' in DataFeeder must be Variable"):
        DataFeeder([3], CPU)
    with pytest.raises(ValueError, match="var z not in this block"):
        DataFeeder(["z"], CPU)
