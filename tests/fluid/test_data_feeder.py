"""DataFeeder: samples of a batch become the tensors of a feed."""

import re
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.data_feeder import DataFeeder, DataToLoDTensorConverter

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


def feeder() -> DataFeeder:
    fluid.layers.data("image", [2, 2])
    label = fluid.layers.data("label", [1], dtype="int64")
    return DataFeeder(["image", label], CPU)


def test_a_batch() -> None:
    batch = [(np.arange(4.0) + i, i) for i in range(3)]
    result = feeder().feed(batch)
    image, label = np.array(result["image"]), np.array(result["label"])
    assert (image.shape, image.dtype) == ((3, 2, 2), np.float32)
    assert image[1].ravel().tolist() == [1, 2, 3, 4]
    assert (label.tolist(), label.dtype) == ([[0], [1], [2]], np.int64)


def test_sequences_are_joined() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    result = DataFeeder([words], CPU).feed([([1, 2, 3],), ([4],)])["words"]
    assert np.array(result).ravel().tolist() == [1, 2, 3, 4]
    assert result.recursive_sequence_lengths() == [[3, 1]]


def test_the_feed_runs() -> None:
    created = feeder()
    mean = fluid.layers.mean(fluid.layers.cast(created.variables[1], "float32"))
    feed = created.feed([([0.0] * 4, 1), ([0.0] * 4, 2)])
    assert fluid.Executor(CPU).run(feed=feed, fetch_list=[mean])[0].tolist() == [1.5]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([([0.0] * 4,)], "a sample has 1 fields, but 2 variables are fed"),
        (
            [([0.0] * 3, 1)],
            "'image' is fed values of shape (1, 3), which do not match (-1, 2, 2)",
        ),
        (
            [([0.0] * 4, 1), ([0.0] * 3, 1)],
            "the samples of 'image' have different sizes, or are not float32: shape (4,), shape (3",
        ),
    ],
)
def test_batches_that_do_not_fit(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        feeder().feed(batch)


def test_a_sample_of_other_fields_is_an_assertion_too() -> None:
    with pytest.raises(AssertionError, match="a sample has 3 fields, but 2"):
        feeder().feed([(1, 2, 3)])


def test_what_is_fed_are_variables() -> None:
    with pytest.raises(TypeError, match="'feed_list\\[0\\]' in DataFeeder must be Variable or str"):
        DataFeeder([3], CPU)
    with pytest.raises(ValueError, match="var z not in this block"):
        DataFeeder(["z"], CPU)


def test_sequences_of_sequences() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=2)
    result = DataFeeder([words], CPU).feed([([[1, 2], [3]],), ([[4, 5, 6]],)])["words"]
    assert np.array(result).ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert result.recursive_sequence_lengths() == [[2, 1], [2, 1, 3]]
    vectors = fluid.layers.data("vectors", [2], lod_level=1)
    result = DataFeeder([vectors], CPU).feed([(np.ones((3, 2)),), (np.zeros((1, 2)),)])["vectors"]
    assert (result.shape(), result.recursive_sequence_lengths()) == ([4, 2], [[3, 1]])


def test_what_is_no_sequence() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    with pytest.raises(TypeError, match="'words' has LoD level 1, so each sample is a sequence"):
        DataFeeder([words], CPU).feed([(3,)])


def test_a_batch_for_each_device() -> None:
    created = feeder()
    batches = [[([i] * 4, i)] * count for i, count in enumerate((1, 2))]
    result = list(created.feed_parallel(batches, 2))
    assert [feed["image"].shape() for feed in result] == [[1, 2, 2], [2, 2, 2]]
    assert np.array(result[1]["label"]).tolist() == [[1], [1]]
    with pytest.raises(ValueError, match="there are 3 devices, but 2 mini-batches were given"):
        list(created.feed_parallel(batches, 3))


def test_devices_are_counted_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    assert len(list(feeder().feed_parallel([[([0.0] * 4, 1)]] * 2))) == 2


def readers_batches(count: int) -> Any:
    return lambda: ([([i] * 4, i)] for i in range(count))


def test_a_reader_of_feeds() -> None:
    created = feeder()
    one = created.decorate_reader(readers_batches(3), multi_devices=False)
    assert [np.array(feed["label"]).item() for feed in one()] == [0, 1, 2]
    assert len(list(one())) == 3
    two = created.decorate_reader(readers_batches(5), multi_devices=True, num_places=2)
    assert [[np.array(feed["label"]).item() for feed in each] for each in two()] == [[0, 1], [2, 3]]


def test_what_is_left_over_is_an_error_on_request() -> None:
    reader = feeder().decorate_reader(
        readers_batches(3), multi_devices=True, num_places=2, drop_last=False
    )
    with pytest.raises(ValueError, match="the last 1 mini-batches are not enough for 2 devices"):
        list(reader())


def test_samples_one_by_one_become_a_tensor():
    converter = DataToLoDTensorConverter(fluid.CPUPlace(), 1, [-1, 1], "int64")
    for _ in range(2):
        converter.feed([1, 2, 3])
        converter.feed([4])
        tensor = converter.done()
        assert (tensor.lod(), tensor.shape()) == ([[0, 3, 4]], [4, 1])
    flat = DataToLoDTensorConverter(fluid.CPUPlace(), 0, [-1, 2, 2], "float32")
    flat.feed([1, 2, 3, 4])
    assert np.asarray(flat.done()).tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
