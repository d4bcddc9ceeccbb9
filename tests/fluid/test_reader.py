"""DataLoader, PyReader and readers in programs: feeds for a loop, or for the program itself."""

import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.core import EOFException
from fluid.dataloader import BatchSampler, Dataset

pytestmark = pytest.mark.usefixtures("fresh_programs")
CPU = fluid.CPUPlace()


@pytest.fixture
def data() -> list[fluid.Variable]:
    return [fluid.data("x", [None, 2]), fluid.data("y", [None, 1], dtype="int64")]


def samples() -> Iterator[tuple[Any, int]]:
    return ((np.full(2, number), number) for number in range(5))


def batches() -> Iterator[list[Any]]:
    for number in range(3):
        yield [np.full((2, 2), number, "float32"), np.full((2, 1), number)]


def loader(data: list[fluid.Variable], **options: Any) -> Any:
    return fluid.io.DataLoader.from_generator(data, capacity=2, **options)


def labels(feeds: Any) -> list[Any]:
    return [[np.array(feed["y"]).ravel().tolist() for feed in each] for each in feeds]


# ---- loops


def test_samples_become_batches_of_the_declared_types(data: list[fluid.Variable]) -> None:
    created = loader(data).set_sample_generator(samples, batch_size=2, places=CPU)
    ((first,), _) = created()
    assert (np.array(first["x"]).dtype, first["x"].shape()) == (np.float32, [2, 2])
    assert labels(created()) == [[[0, 1]], [[2, 3]]]
    created.set_sample_generator(samples, batch_size=2, drop_last=False, places=[CPU])
    assert labels(created) == [[[0, 1]], [[2, 3]], [[4]]]


def test_lists_of_samples_and_whole_batches(data: list[fluid.Variable]) -> None:
    created = loader(data).set_sample_list_generator(fluid.io.batch(samples, 3), places=CPU)
    assert labels(created()) == [[[0, 1, 2]], [[3, 4]]]
    assert labels(created.set_batch_generator(batches, places=CPU)()) == [
        [[0, 0]],
        [[1, 1]],
        [[2, 2]],
    ]


def test_a_feed_may_be_a_list(data: list[fluid.Variable]) -> None:
    created = loader(data, return_list=True).set_batch_generator(batches, places=CPU)
    (((x, y),), *_) = created()
    assert (x.shape(), y.shape()) == ([2, 2], [2, 1])


def test_several_places_share_batches(data: list[fluid.Variable]) -> None:
    created = loader(data).set_batch_generator(batches, places=[CPU, CPU])
    assert labels(created()) == [[[0, 0], [1, 1]]]
    created = loader(data, drop_last=False).set_batch_generator(batches, places=[CPU, CPU])
    assert labels(created()) == [[[0, 0], [1, 1]], [[2, 2]]]


def test_sequences_keep_their_lengths() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    created = loader([words]).set_sample_generator(
        lambda: [([1, 2],), ([3],)], batch_size=2, places=CPU
    )
    ((feed,),) = created()
    assert feed["words"].recursive_sequence_lengths() == [[2, 1]]
    tensor = fluid.create_lod_tensor(np.array([[1], [2]]), [[1, 1]], CPU)
    (((same,),),) = loader([words], return_list=True).set_batch_generator(
        lambda: [[tensor]], places=CPU
    )()
    assert same is tensor


def test_a_feed_runs(data: list[fluid.Variable], exe: Any) -> None:
    total = fluid.layers.mean(data[0])
    created = loader(data).set_batch_generator(batches, places=CPU)
    assert [exe.run(feed=feed, fetch_list=[total])[0].item() for feed in created()] == [
        0.0,
        1.0,
        2.0,
    ]


def test_leaving_the_loop_leaves_no_thread(data: list[fluid.Variable]) -> None:
    before = {*threading.enumerate()}
    for _ in loader(data).set_batch_generator(batches, places=CPU):
        break
    assert {*threading.enumerate()} <= before


def test_an_error_of_the_generator_is_raised(data: list[fluid.Variable]) -> None:
    def broken() -> Iterator[Any]:
        yield from batches()
        raise KeyError("broken")

    seen = []
    with pytest.raises(KeyError, match="broken") as failure:
        for feed in loader(data).set_batch_generator(broken, places=CPU):
            seen.append(feed)
    assert len(seen) == 3
    assert isinstance(failure.value, fluid.core.EnforceNotMet)  # as in release 1.8.5
    assert "broken" in {frame.name for frame in traceback.extract_tb(failure.tb)}


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([np.zeros((2, 2))], ValueError, "a batch has 1 values, but one each is fed to"),
        ([[[1], [2, 3]], np.zeros((2, 1))], ValueError, "rows of different lengths"),
        ([object(), np.zeros((2, 1))], TypeError, "the value for 'x' is no array of numbers"),
    ],
)
def test_batches_that_are_none(
    data: list[fluid.Variable], batch: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(loader(data).set_batch_generator(lambda: [batch], places=CPU))


def test_what_a_loader_needs(data: list[fluid.Variable]) -> None:
    with pytest.raises(ValueError, match="give value to capacity"):
        fluid.io.DataLoader.from_generator(data)
    with pytest.raises(ValueError, match="feed_list must be given"):
        fluid.io.DataLoader.from_generator(capacity=2)
    with pytest.raises(AssertionError, match="Places cannot be None"):
        loader(data).set_batch_generator(batches)
    with pytest.raises(TypeError, match="places are CPUPlace"):
        loader(data).set_batch_generator(batches, places="cpu")
    with pytest.raises(AssertionError, match="data source of the reader of x, y has not been set"):
        list(loader(data))
    with pytest.raises(AssertionError, match="batch_size must be larger than 0"):
        loader(data).set_sample_generator(samples, batch_size=0, places=CPU)
    with pytest.raises(AssertionError, match="iterable=True: you cannot call start"):
        loader(data).start()
    with pytest.raises(AssertionError, match="iterable=False: you cannot iterate"):
        list(loader(data, iterable=False))


def test_sources_are_functions(data: list[fluid.Variable]) -> None:
    loader = fluid.io.DataLoader.from_generator(data, 2)
    for take in (loader.set_batch_generator, loader.set_sample_list_generator):
        with pytest.raises(TypeError, match=r"must be a function .*, but received list: pass the"):
            take([1], places=fluid.CPUPlace())


def test_reset_ends_the_current_iteration(data: list[fluid.Variable]) -> None:
    created = loader(data).set_batch_generator(batches, places=CPU)
    running = iter(created)
    assert labels([next(running), next(created)]) == [[[0, 0]], [[1, 1]]]
    created._reset()
    assert list(running) == []
    assert labels([next(created)]) == [[[0, 0]]]


# ---- programs that read


def run_all(exe: Any, fetch: Any, program: Any = None) -> list[Any]:
    results = []
    while True:
        try:
            results.append(exe.run(program, fetch_list=[fetch])[0].ravel().tolist())
        except EOFException:
            return results


def test_a_program_reads_by_itself(data: list[fluid.Variable], exe: Any) -> None:
    created = loader(data, iterable=False)
    created.set_batch_generator(batches)
    doubled = fluid.layers.scale(data[1], 2.0)
    for _ in range(2):
        created.start()
        assert run_all(exe, doubled) == [[0, 0], [2, 2], [4, 4]]
        created.reset()
    with pytest.raises(RuntimeError, match=r"the reader of x, y is not started: call its start"):
        exe.run(fetch_list=[doubled])
    created.start()
    with pytest.raises(RuntimeError, match="is started already"):
        created.start()
    created.reset()


def test_what_is_fed_is_not_read(data: list[fluid.Variable], exe: Any) -> None:
    created = loader(data, iterable=False)
    created.set_batch_generator(batches)
    doubled = fluid.layers.scale(data[1], 2.0)
    feed = {"x": np.zeros((1, 2), "float32"), "y": np.array([[7]])}
    assert exe.run(feed=feed, fetch_list=[doubled])[0].tolist() == [[14]]


def test_an_error_of_the_generator_reaches_the_run(data: list[fluid.Variable], exe: Any) -> None:
    def broken() -> Iterator[Any]:
        yield from batches()
        raise KeyError("broken")

    before = {*threading.enumerate()}
    created = loader(data, iterable=False)
    created.set_batch_generator(broken)
    label = fluid.layers.scale(data[1], 1.0)
    created.start()
    with pytest.raises(KeyError, match="broken"):
        run_all(exe, label)
    assert {*threading.enumerate()} <= before


def test_copies_read_from_the_same_reader_unless_pruned(
    data: list[fluid.Variable], exe: Any
) -> None:
    created = loader(data, iterable=False)
    created.set_batch_generator(batches)
    loss = fluid.layers.mean(fluid.layers.scale(data[0], 1.0))
    main = fluid.default_main_program()
    created.start()
    assert run_all(exe, loss, main.clone(for_test=True)) == [[0.0], [1.0], [2.0]]
    created.reset()
    with pytest.raises(ValueError, match="missing feed: 'x'"):
        exe.run(main._inference_optimize(), fetch_list=[loss])
    assert main._prune([loss]).readers == main.readers


def test_py_reader(exe: Any) -> None:
    reader = fluid.layers.py_reader(4, [(-1, 2), (-1, 1)], ["float32", "int64"], name="train")
    reader.decorate_paddle_reader(fluid.io.batch(samples, 2))
    x, y = fluid.layers.read_file(fluid.layers.double_buffer(reader))
    assert (reader.name, x.name, y.name) == (
        "train_reader",
        "read_file_0.tmp_0",
        "read_file_0.tmp_1",
    )
    assert (x.shape, y.shape, y.dtype.name, y.stop_gradient) == ((-1, 2), (-1, 1), "INT64", True)
    total = fluid.layers.mean(x)
    for _ in range(2):
        reader.start()
        assert run_all(exe, total) == [[0.5], [2.5], [4.0]]
        reader.reset()
    reader.decorate_tensor_provider(batches)
    reader.start()
    assert run_all(exe, y) == [[0, 0], [1, 1], [2, 2]]


def test_two_reads_take_two_batches(exe: Any) -> None:
    reader = fluid.layers.py_reader(4, [(-1, 1)], ["float32"], use_double_buffer=False)
    reader.decorate_batch_generator(lambda: ([np.full((1, 1), i, "float32")] for i in range(4)))
    first, second = fluid.layers.read_file(reader), fluid.layers.read_file(reader)
    difference = second - first
    reader.start()
    assert run_all(exe, difference) == [[1.0], [1.0]]


def test_a_reader_for_variables_like_these(data: list[fluid.Variable], exe: Any) -> None:
    reader = fluid.layers.create_py_reader_by_data(4, data)
    reader.decorate_sample_list_generator(fluid.io.batch(samples, 5))
    x, y = fluid.layers.read_file(reader)
    assert (x.shape, y.name) == (data[0].shape, "read_file_0.tmp_1")
    doubled = fluid.layers.scale(y, 2.0)
    reader.start()
    assert run_all(exe, doubled) == [[0, 2, 4, 6, 8]]
    with pytest.raises(TypeError, match="'feed_list' in create_py_reader_by_data must be list"):
        fluid.layers.create_py_reader_by_data(4, data[0])


def test_readers_take_one_of_each() -> None:
    with pytest.raises(ValueError, match="2 shapes, 1 dtypes and 2 lod_levels"):
        fluid.layers.py_reader(4, [(-1, 1), (-1, 2)], ["float32"])
    with pytest.raises(TypeError, match="'reader' in read_file must be Reader"):
        fluid.layers.read_file(3)


def test_py_reader_under_its_class_name(data: list[fluid.Variable], exe: Any) -> None:
    reader = fluid.io.PyReader(data, capacity=4)
    reader.decorate_sample_generator(samples, batch_size=5, places=CPU)
    assert labels(reader()) == [[[0, 1, 2, 3, 4]]]
    assert reader.iterable
    reader = fluid.io.PyReader(data, capacity=4, iterable=False)
    reader.decorate_batch_generator(batches)
    label = fluid.layers.scale(data[1], 1.0)
    reader.start()
    assert reader.queue.capacity() == 4
    assert run_all(exe, label) == [[0, 0], [1, 1], [2, 2]]
    reader.reset()


# ---- datasets


class Numbers(Dataset):
    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(2, index, "float32"), np.array([index])

    def __len__(self) -> int:
        return 7


@pytest.mark.parametrize("options", [{}, {"num_workers": 3}, {"use_buffer_reader": False}])
def test_a_dataset_in_order(data: list[fluid.Variable], options: Any) -> None:
    created = fluid.io.DataLoader(Numbers(), data, places=CPU, batch_size=2, **options)
    assert (len(created), labels(created())) == (4, [[[0, 1]], [[2, 3]], [[4, 5]], [[6]]])


def test_workers_are_begun_with_their_number(data: list[fluid.Variable]) -> None:
    def begin(number: int) -> None:
        if number == 1:
            raise KeyError("worker 1")

    created = fluid.io.DataLoader(
        Numbers(), data, places=CPU, batch_size=2, num_workers=2, worker_init_fn=begin
    )
    with pytest.raises(ValueError, match="KeyError: 'worker 1'"):
        list(created)


def test_a_slow_worker_is_an_error(data: list[fluid.Variable]) -> None:
    created = fluid.io.DataLoader(
        Numbers(),
        data,
        places=CPU,
        num_workers=1,
        timeout=0.05,
        worker_init_fn=lambda number: threading.Event().wait(5),
    )
    with pytest.raises(TimeoutError, match=r"no sample for 0\.05 seconds"):
        list(created)


def test_a_sampler_and_a_collate_function(data: list[fluid.Variable]) -> None:
    sampler = BatchSampler(indices=[5, 3], batch_size=2)
    created = fluid.io.DataLoader(
        Numbers(),
        return_list=True,
        places=CPU,
        batch_sampler=sampler,
        collate_fn=lambda found: [np.stack([label for _, label in found])],
    )
    ((((label,),)),) = [*created]
    assert np.array(label).tolist() == [[5], [3]]


def test_shuffled_indices_are_all_there() -> None:
    np.random.seed(0)
    sampler = BatchSampler(Numbers(), shuffle=True, batch_size=3, drop_last=True)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert (len(sampler), [len(batch) for batch in first]) == (2, [3, 3])
    assert sorted(sampler.indices) == list(range(7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": 3}, "dataset should be a"),
        ({"feed_list": None}, "feed_list should be set"),
        ({"places": None}, "Places cannot be None"),
        ({"num_workers": -1}, "num_workers should be"),
        ({"timeout": -1}, "timeout should be"),
        ({"batch_size": 0}, "batch_size should be a positive integer"),
        ({"batch_sampler": BatchSampler(Numbers()), "shuffle": True}, "should not be set when"),
    ],
)
def test_what_a_dataset_loader_rejects(
    data: list[fluid.Variable], options: Any, message: str
) -> None:
    inputs = {"dataset": Numbers(), "feed_list": data, "places": CPU} | options
    with pytest.raises(AssertionError, match=message):
        fluid.io.DataLoader(**inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either dataset or indices"),
        ({"dataset": Numbers(), "indices": [1]}, "either dataset or indices"),
        ({"dataset": [1, 2]}, "dataset should be a Dataset"),
        ({"indices": "12"}, "indices should be a list or tuple"),
        ({"indices": [1], "shuffle": 1}, "shuffle should be a boolean"),
        ({"indices": [1], "drop_last": None}, "drop_last should be a boolean"),
        ({"indices": [1], "batch_size": 1.5}, "batch_size should be a positive integer"),
    ],
)
def test_what_a_sampler_rejects(options: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        BatchSampler(**options)


def test_a_dataset_reports_what_it_lacks() -> None:
    class Nothing(Dataset):
        pass

    with pytest.raises(NotImplementedError, match="Nothing does not define __len__"):
        len(Nothing())
    with pytest.raises(NotImplementedError, match="Nothing does not define __getitem__"):
        Nothing()[0]


def test_samplers_of_batches_are_found_in_io() -> None:
    assert list(fluid.io.BatchSampler(indices=[3, 4, 5], batch_size=2)) == [[3, 4], [5]]
