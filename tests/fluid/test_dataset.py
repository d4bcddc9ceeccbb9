"""Training over files: datasets, their lines, generators of lines."""

import io
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.dataset import sources
from fluid.dataset.multi_slot import Sample, SampleSlot, as_line, from_line
from fluid.incubate.data_generator import MultiSlotDataGenerator, MultiSlotStringDataGenerator

layers = fluid.layers


@pytest.fixture(autouse=True)
def programs():
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield main


def click_model():
    """A model of clicks over ids of any number, a dense feature and a label."""
    ids = layers.data("ids", [1], dtype="int64", lod_level=1)
    dense = layers.data("dense", [2])
    label = layers.data("label", [1], dtype="int64")
    pooled = layers.sequence_pool(layers.embedding(ids, [50, 4], is_sparse=True), "sum")
    scores = layers.fc([pooled, dense], 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(scores, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [ids, dense, label], loss


def samples(count, seed):
    random = np.random.RandomState(seed)
    for _ in range(count):
        ids = random.randint(0, 50, random.randint(1, 6))
        dense = random.rand(2).astype("float32").round(3)
        yield ids, dense, np.array([int(ids.max() > 30)])


def write_files(folder, counts=(37, 20, 5)):
    names = []
    for number, count in enumerate(counts):
        lines = []
        for row in samples(count, number):
            lines.append(" ".join(f"{len(v)} {' '.join(map(str, v.tolist()))}" for v in row))
        path = Path(folder) / f"part-{number}"
        path.write_text("\n".join(lines) + "\n")
        names.append(str(path))
    return names


def make(kind, variables, files, batch=8, threads=1):
    created = fluid.DatasetFactory().create_dataset(kind)
    created.set_use_var(variables)
    created.set_filelist(files)
    created.set_batch_size(batch)
    created.set_thread(threads)
    return created


def start(executor):
    """Give the parameters the same values each time."""
    executor.run(fluid.default_startup_program())
    random = np.random.RandomState(0)
    for param in fluid.default_main_program().global_block().all_parameters():
        value = random.uniform(-0.5, 0.5, param.shape).astype("float32")
        fluid.global_scope().find_var(param.name).get_tensor().set(value, fluid.CPUPlace())


def trained(executor, loss, dataset, **options):
    start(executor)
    executor.train_from_dataset(fluid.default_main_program(), dataset, **options)
    return np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())


def test_a_pass_over_files_is_the_steps_by_hand(tmp_path, programs):
    variables, loss = click_model()
    files = write_files(tmp_path)
    executor = fluid.Executor()
    result = trained(executor, loss, make("QueueDataset", variables, files))
    start(executor)
    rows = [row for number, count in enumerate((37, 20, 5)) for row in samples(count, number)]
    for first in range(0, len(rows), 8):
        ids, dense, label = zip(*rows[first : first + 8], strict=True)
        sequences = fluid.create_lod_tensor(
            np.concatenate(ids).reshape(-1, 1), [list(map(len, ids))], fluid.CPUPlace()
        )
        feed = {"ids": sequences, "dense": np.array(dense), "label": np.array(label)}
        executor.run(programs, feed=feed)
    by_hand = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
    np.testing.assert_array_equal(result, by_hand)


def test_several_processes_read_every_sample_and_the_result_is_one(tmp_path):
    variables, _ = click_model()
    files = write_files(tmp_path)
    runs = []
    for _ in range(2):
        dataset = make("QueueDataset", variables, files, threads=3)
        seen = [feed["label"].shape[0] for feed in dataset.feeds()]
        assert sum(seen) == 62
        runs.append([feed["dense"].sum() for feed in dataset.feeds()])
    assert runs[0] == runs[1]


def test_samples_in_memory_are_shuffled(tmp_path, capsys):
    variables, loss = click_model()
    dataset = make("InMemoryDataset", variables, write_files(tmp_path), threads=2)
    dataset.load_into_memory()
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 62

    def order():
        return np.concatenate([feed["dense"] for feed in dataset.feeds()])

    before = order()
    dataset.local_shuffle()
    after = order()
    assert (before != after).any()
    assert sorted(map(tuple, before)) == sorted(map(tuple, after))
    trained(fluid.Executor(), loss, dataset, fetch_list=[loss], fetch_info=["loss"], print_period=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["batch 0", "batch 4"]
    assert all(": loss: [" in line for line in lines)
    dataset.release_memory()
    assert dataset.get_memory_data_size() == 0


@pytest.mark.parametrize(
    ("kind", "ids", "floats"),
    [
        ("QueueDataset", [[0, 5, 0], [0], [7, 8]], [[0, 1.5], [2.5, 1e-7, 0], [0]]),
        ("InMemoryDataset", [[5], [0], [7, 8]], [[1.5], [2.5], [0]]),
    ],
)
def test_zeros_of_slots_of_any_length_are_left_out_in_memory(tmp_path, kind, ids, floats):
    """As release 1.8.5 does; what a shape counts is kept, and no slot is empty."""
    variables = [
        fluid.layers.data("a", [1], dtype="int64", lod_level=1),
        fluid.layers.data("f", [1], lod_level=1),
        fluid.layers.data("d", [2], dtype="int64"),
    ]
    text = "3 0 5 0 2 0.0 1.5 2 0 0\n1 0 3 2.5 1e-7 0 2 1 0\n2 7 8 1 0 2 1 0\n"
    (tmp_path / "part").write_text(text)
    dataset = make(kind, variables, [str(tmp_path / "part")])
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    (feed,) = dataset.feeds()
    for name, rows in (("a", ids), ("f", floats)):
        assert feed[name].recursive_sequence_lengths() == [[len(row) for row in rows]]
        result = np.array(feed[name]).ravel()
        np.testing.assert_array_equal(result, np.concatenate(rows).astype(result.dtype))
    np.testing.assert_array_equal(feed["d"], [[0, 0], [1, 0], [1, 0]])


def test_files_are_read_in_the_background(tmp_path):
    variables, _ = click_model()
    dataset = make("InMemoryDataset", variables, write_files(tmp_path))
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 62
    dataset.set_filelist([str(tmp_path / "missing")])
    dataset.preload_into_memory()
    with pytest.raises(FileNotFoundError):
        dataset.wait_preload_done()


def test_inference_updates_nothing(tmp_path):
    variables, _ = click_model()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(weight)
    executor.infer_from_dataset(dataset=make("QueueDataset", variables, write_files(tmp_path)))
    np.testing.assert_array_equal(before, np.array(weight))


def test_a_handler_sees_values_while_steps_run(tmp_path):
    variables, loss = click_model()
    seen = []

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict):
            seen.append(res_dict["loss"])

    dataset = make("QueueDataset", variables, write_files(tmp_path, (400,)), batch=2)
    handler = Handler({"loss": loss}, period_secs=0.005)
    trained(fluid.Executor(), loss, dataset, fetch_handler=handler)
    assert any(value is not None and value.shape == (1,) for value in seen)


def test_a_pipe_command_makes_the_lines(tmp_path):
    x, y = layers.data("x", [2]), layers.data("y", [1], dtype="int64")
    (tmp_path / "raw.csv").write_text("1.5,2,7\n3,4,8\n")
    script = tmp_path / "generator.py"
    script.write_text(
        "from fluid.incubate.data_generator import MultiSlotDataGenerator\n"
        "class Mine(MultiSlotDataGenerator):\n"
        "    def generate_sample(self, line):\n"
        "        def samples():\n"
        "            a, b, c = line.split(',')\n"
        "            yield [('x', [float(a), float(b)]), ('y', [int(c)])]\n"
        "        return samples\n"
        "Mine().run_from_stdin()\n"
    )
    dataset = make("QueueDataset", [x, y], [str(tmp_path / "raw.csv")])
    dataset.set_pipe_command(f"{sys.executable} {script}")
    (feed,) = dataset.feeds()
    assert feed["x"].tolist() == [[1.5, 2], [3, 4]]
    assert feed["y"].tolist() == [[7], [8]] and feed["y"].dtype == np.int64


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 1 2 2 0.5 1 1 1 9", "unexpected '9' after the values of 'label'"),
        ("2 1 2 3 0.5 1 2 1 1", "'dense' has 3 values, but its shape takes 2"),
        ("0 2 0.5 1 1 1", "'ids' has 0 values"),
        ("x 2 0.5 1 1 1", "'ids' begins with its number of values, not x"),
        ("2 1 2 2 0.5", "'dense' has 2 values, but 1 follow"),
        ("2 1 2 2 0.5 1", "'label' begins with its number of values, not the end of the line"),
        ("2 1 -2 2 0.5 1 1 1", "'ids' takes ids from 0 to"),
        ("1 99999999999999999999 2 0.5 1 1 1", "'ids' takes ids from 0 to"),
        ("1 1 2 0.5 no 1 1", "'dense' takes numbers, but"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    variables, _ = click_model()
    path = tmp_path / "part"
    path.write_text("1 1 2 0.5 1 1 1\n" + line + "\n")
    with pytest.raises(ValueError, match="line 2") as error:
        list(make("QueueDataset", variables, [str(path)]).feeds())
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("command", "printed", "end"),
    [
        ("exit 3", "", "/part-0"),
        ("seq 9 >&2; exit 3", "123456789", "/part-0:\n  2\n  3\n  4\n  5\n  6\n  7\n  8\n  9"),
        ("echo no_paddle >&2; exit 3", "no_paddle", "\n  no_paddle\nhint"),
    ],
)
def test_a_command_that_fails_shows_its_error(tmp_path, capfd, monkeypatch, command, printed, end):
    monkeypatch.setattr(sources, "NO_PADDLE", "no_paddle")
    monkeypatch.setattr(sources, "NO_PADDLE_HINT", "\nhint")
    variables, _ = click_model()
    dataset = make("QueueDataset", variables, write_files(tmp_path))
    dataset.set_pipe_command(command)
    with pytest.raises(RuntimeError) as error:
        list(dataset.feeds())
    assert str(error.value).startswith(f"`{command}` ended with 3 on {tmp_path}")
    assert str(error.value).endswith(end)
    assert "".join(capfd.readouterr().err.split()) == printed


def test_what_a_dataset_needs():
    executor = fluid.Executor()
    with pytest.raises(RuntimeError, match=r"^dataset is need and should be initialized$"):
        executor.train_from_dataset()
    with pytest.raises(ValueError, match="datafeed class Quue does not exist"):
        fluid.DatasetFactory().create_dataset("Quue")
    queue = fluid.DatasetFactory().create_dataset()
    with pytest.warns(UserWarning, match="the dataset has no files"):
        list(queue.feeds())
    queue.set_filelist([__file__])
    with pytest.raises(ValueError, match="needs set_use_var"):
        list(queue.feeds())
    with pytest.raises(NotImplementedError, match="use InMemoryDataset for global_shuffle"):
        queue.global_shuffle()
    instant = make("FileInstantDataset", [layers.data("ids", [1])], [__file__])
    with pytest.raises(NotImplementedError, match="MultiSlotFileInstantDataFeed is no reader"):
        list(instant.feeds())
    with pytest.raises(ValueError, match="'x' is float64"):
        queue.set_use_var([layers.data("x", [1], dtype="float64")])


def test_a_sample_survives_as_a_line():
    slots = [SampleSlot("a", False, None), SampleSlot("b", True, (2,))]
    row = [np.array([1, -1, 1 << 62]), np.array([0.1, -3e-8], "float32")]
    for sample in (Sample(row), Sample(row, "id7")):
        again = from_line(as_line(sample, slots), slots)
        assert again.id == sample.id
        for one, other in zip(row, again.row, strict=True):
            np.testing.assert_array_equal(one, other)


MARKED = """\
1 id1 1 7 2 3 3 2 5 6
1 id1 1 0 2 0 1 2 1 1
1 id2 1 1 1 1 2 0 0
1 id3 1 0 1 2 2 3 3
1 id2 1 0 2 0 0 2 4 4
1 id5 1 0 1 3 2 8 9
1 id5 1 6 1 0 2 0 0
"""
"""Lines of an id, ids, numbers and two dense ids."""


def marked_dataset(kind, folder, text):
    """A dataset of one file, whose lines begin with a mark."""
    (folder / "marked").write_text(text)
    variables = [
        layers.data("x", [1], dtype="int64", lod_level=1),
        layers.data("y", [1], lod_level=1),
        layers.data("d", [2], dtype="int64"),
    ]
    return make(kind, variables, [str(folder / "marked")], batch=2)


def test_global_shuffle_merges_samples_by_line_id(tmp_path):
    """As release 1.8.5: id1 has two values for y, id3 has one sample only."""
    dataset = marked_dataset("InMemoryDataset", tmp_path, MARKED)
    dataset.set_merge_by_lineid(2)
    dataset.load_into_memory()
    with pytest.warns(UserWarning, match="samples of id 'id[13]' are dropped"):
        dataset.global_shuffle()
    (feed,) = dataset.feeds()
    rows = np.concatenate([np.array(feed[name]).reshape(2, -1) for name in "xyd"], axis=1)
    assert sorted(rows.tolist()) == [[1, 1, 4, 4], [6, 3, 8, 9]]


def test_box_ps_batches_page_views_with_rank_offsets(tmp_path):
    kinds = [("0de", 1, 1), ("0df", 2, 1), ("0de", 2, 2), ("195", 1, 1), ("0de", 3, 1)]
    keys = [f"1702f830eee{m}{r:02x}ad7429505f714c{s:02x}" for m, r, s in kinds]
    lines = [f"1 {key} 1 {i + 1} 1 9 2 1 1\n" for i, key in enumerate(keys)]
    dataset = marked_dataset("BoxPSDataset", tmp_path, "".join(lines))
    dataset.set_parse_logkey(True)
    dataset.set_enable_pv_merge(True)
    dataset.set_rank_offset("rank_offset")
    dataset.set_pv_batch_size(2)
    dataset.set_date("20200131")
    dataset.load_into_memory()
    dataset.preprocess_instance()
    dataset.begin_pass()
    assert (dataset.get_pv_data_size(), dataset.get_memory_data_size()) == (2, 0)
    (feed,) = dataset.feeds()
    assert np.array(feed["x"]).ravel().tolist() == [1, 2, 4, 5, 3]
    none = [-1] * 7
    first = [1, 0, 2, 1, 3, 3]
    ranks = [[1, *first], [2, *first], none, [3, *first], [2, -1, -1, 2, 4, -1, -1]]
    assert feed["rank_offset"].tolist() == ranks
    dataset.set_current_phase(0)
    dataset.postprocess_instance()
    assert [len(feed["d"]) for feed in dataset.feeds()] == [2, 2, 1]
    dataset.end_pass(True)


def test_a_loader_has_a_reader_for_each_place(tmp_path):
    """Values of 1.8.5: tensors, batches of each file, a sample of twice the values is two rows."""
    (tmp_path / "a").write_text("1 7 1 3 4 5 6 7 8\n1 8 1 3 2 1 1\n1 9 1 3 2 2 2\n")
    (tmp_path / "b").write_text("1 1 1 3 2 3 3\n1 2 1 3 2 4 4\n1 3 1 3 2 5 5\n")
    dataset = marked_dataset("QueueDataset", tmp_path, "")
    dataset.set_filelist([str(tmp_path / "a"), str(tmp_path / "b")])
    for drop_last in (True, False):
        with pytest.warns(UserWarning, match=r"set_thread\(1\)") if drop_last else nullcontext():
            loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(2), drop_last)
        groups = list(loader)
        assert [[place["d"].shape()[0] for place in group] for group in groups] == [
            [3, 2],
            *([[1, 1]] if not drop_last else []),
        ]
        assert groups[0][1]["x"].lod() == [[0, 1, 2]]
    (tmp_path / "b").write_text("1 1 1 3 2 3 3\n")
    assert len(list(loader)) == 1  # the second batch of the other file has no companion


def test_remote_files_are_printed_by_a_download_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = marked_dataset("QueueDataset", tmp_path, "1 7 1 3 2 5 6\n")
    (tmp_path / "marked").rename("afs:marked")
    dataset.set_filelist(["afs:marked"])
    dataset.set_download_cmd("cat")
    (feed,) = dataset.feeds()
    assert feed["d"].tolist() == [[5, 6]]
    dataset.set_download_cmd("exit 4;")
    with pytest.raises(RuntimeError, match="`exit 4; afs:marked` ended with 4"):
        list(dataset.feeds())


def test_values_with_lod_are_printed(tmp_path, capfd):
    dataset = marked_dataset("QueueDataset", tmp_path, "2 7 8 1 3 2 5 6\n")
    ids = fluid.default_main_program().global_block().var("x")
    doubled = layers.scale(ids, 2.0)
    fluid.Executor().train_from_dataset(
        dataset=dataset, fetch_list=[doubled], fetch_info=["doubled"]
    )
    assert capfd.readouterr().out == "batch 0: doubled: [[14]\n [16]] (LoD [[0, 2]])\n"


def test_core_dataset_has_the_settings_of_scripts():
    native = fluid.core.Dataset("MultiSlotDataset")
    native.set_thread_num(12)
    native.set_filelist(["a.txt", "b.txt"])
    native.set_trainer_num(4)
    native.set_hdfs_config("name", "ugi")
    native.set_download_cmd("./read")
    assert (native.get_thread_num(), native.get_trainer_num()) == (12, 4)
    assert native.get_filelist() == ["a.txt", "b.txt"]
    assert (native.get_hdfs_config(), native.get_download_cmd()) == (("name", "ugi"), "./read")


class Numbers(MultiSlotDataGenerator):
    def generate_sample(self, line):
        return lambda: [[("words", [int(w) for w in line.split()]), ("label", [1])], None]


class Texts(MultiSlotStringDataGenerator):
    def generate_sample(self, line):
        return lambda: iter([[("words", line.split()), ("label", ["1"])]])


class Zipped(MultiSlotDataGenerator):
    def generate_sample(self, line):
        return lambda: iter(
            [zip(["words", "label"], [[*map(int, line.split())], [1]], strict=True)]
        )


@pytest.mark.parametrize("kind", [Numbers, Texts, Zipped])
def test_generators_print_samples(kind, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2 3\n4\n"))
    generator = kind()
    generator.set_batch(2)
    generator.run_from_stdin()
    assert capfd.readouterr().out == "3 1 2 3 1 1\n1 4 1 1\n"


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ("text", "must be a list or a tuple"),
        ([("words", [])], "pad it"),
        ([(1, [1])], "must be a str, not int"),
        ([("words", ["1"])], "takes int and float, not str"),
    ],
)
def test_samples_that_cannot_be_printed(sample, message):
    with pytest.raises(ValueError, match=message):
        MultiSlotDataGenerator()._gen_str(sample)


def test_fields_must_not_change():
    generator = MultiSlotDataGenerator()
    with pytest.raises(ValueError, match="line_limit must be an int of 1 or more, not 0"):
        generator._set_line_limit(0)
    generator._gen_str([("a", [1])])
    with pytest.raises(ValueError, match="has the fields"):
        generator._gen_str([("b", [1])])
