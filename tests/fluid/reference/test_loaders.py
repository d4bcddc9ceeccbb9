"""Loaders that are asked for one batch after the other, and loaders of datasets."""

import numpy as np
import pytest

import fluid

pytestmark = pytest.mark.usefixtures("fresh_programs")


def reader():
    for value in range(3):
        yield [np.full((2, 1), value, "float32")]


def test_a_reader_returns_one_batch_after_the_other():
    x = fluid.data("x", [None, 1])
    py_reader = fluid.io.PyReader([x], capacity=2)
    py_reader.decorate_batch_generator(reader, fluid.CPUPlace())
    loop = iter(py_reader)
    results = [np.array(py_reader.next()[0]["x"]).ravel()[0] for _ in range(2)]
    assert results == [0.0, 1.0]
    assert np.array(next(py_reader)[0]["x"])[0] == 2.0
    with pytest.raises(StopIteration):
        py_reader.next()
    assert list(loop) == []


@pytest.fixture
def dataset(tmp_path):
    lines = [f"1 id{n} 2 {n} {n + 10} 1 {n}.5" for n in range(5)]
    path = tmp_path / "part-0"
    path.write_text("\n".join(lines) + "\n")
    ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
    label = fluid.data("label", [None, 1])
    created = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    created.set_use_var([ids, label])
    created.set_filelist([str(path)])
    created.set_batch_size(2)
    created.set_parse_ins_id(True)
    created.load_into_memory()
    return created


def labels(loader):
    return [np.array(feed["label"]).ravel().tolist() for (feed,) in loader]


def test_a_dataset_is_looped_over(dataset):
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last=False)
    assert labels(loader) == [[0.5, 1.5], [2.5, 3.5], [4.5]]
    assert labels(loader()) == [[0.5, 1.5], [2.5, 3.5], [4.5]]
    (first,) = next(loader)
    assert first["ids"].recursive_sequence_lengths() == [[1, 2]]  # the id 0 is left out
    dropping = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1))
    assert labels(dropping) == [[0.5, 1.5], [2.5, 3.5]]
    with pytest.raises(AssertionError, match="1 files"):
        fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(2))
    with pytest.raises(AssertionError, match="DatasetBase"):
        fluid.io.DataLoader.from_dataset(reader, fluid.cpu_places(1))


def test_one_slot_is_shuffled(dataset):
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last=False)

    def ids():
        feeds = [feed for (feed,) in loader]
        return [int(i) for feed in feeds for i in np.array(feed["ids"]).ravel()]

    before = ids()
    dataset.slots_shuffle(["ids"])
    assert ids() == before
    dataset.set_fea_eval(10, True)
    np.random.seed(1)
    dataset.slots_shuffle(["ids"])
    assert ids() != before
    assert sorted(ids()) == sorted(before)
    assert labels(loader) == [[0.5, 1.5], [2.5, 3.5], [4.5]]
    with pytest.warns(UserWarning, match="no slot 'other'"):
        dataset.slots_shuffle(["other"])


def test_a_line_without_an_id_is_an_error(dataset, tmp_path):
    (tmp_path / "part-0").write_text("2 7 8 1 0.5\n")
    with pytest.raises(ValueError, match=r"line 1 .* 1 times `1 text`"):
        dataset.load_into_memory()


def test_help_of_fetch_handlers(capsys):
    fluid.executor.FetchHandler.help()
    assert "res_dict" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="var_dict"):
        fluid.executor.FetchHandler()


FEED = """name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
  slots {
    name: "words"
    type: "uint64"
    is_dense: false
    is_used: false
  }
}
"""


def test_a_description_of_a_feed_is_read_and_changed(tmp_path):
    path = tmp_path / "data.proto"
    path.write_text(FEED)
    described = fluid.DataFeedDesc(str(path))
    assert described.desc() == FEED + 'pipe_command: "cat"\n'
    described.set_batch_size(128)
    described.set_dense_slots(["words"])
    described.set_use_slots(["words"])
    (slot,) = described.proto_desc.multi_slot_desc.slots
    assert (described.proto_desc.batch_size, slot.is_dense, slot.is_used) == (128, True, True)
    with pytest.raises(KeyError, match="'other'"):
        described.set_use_slots(["other"])
    with pytest.raises(TypeError, match="int"):
        described.set_batch_size("many")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name "x"', "line 1: expected :"),
        ("size: 3", "no field 'size'"),
        ('\nbatch_size: "x"', "line 2: batch_size takes a value of type int"),
        ("multi_slot_desc { slots {", "expected a value, not the end"),
        ("name: x", "name takes a value of type str"),
        ("?", "expected a field"),
    ],
)
def test_text_that_describes_no_feed(tmp_path, text, message):
    path = tmp_path / "data.proto"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        fluid.DataFeedDesc(str(path))


def test_a_dataset_describes_itself(dataset):
    text = dataset.desc()
    assert 'name: "ids"\n    type: "uint64"\n    is_used: true' in text
    assert "shape: -1\n    shape: 1\n" in text
    assert dataset.proto_desc.batch_size == 2
