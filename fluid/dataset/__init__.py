"""File datasets for `Executor.train_from_dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from compiler.errors import did_you_mean
from compiler.ir.types import Array
from fluid.data_feed_desc import DataFeed, feed_text
from fluid.data_feed_desc import FeedSlot as DescribedSlot
from fluid.dataset.multi_slot import (
    Row,
    SampleSlot,
    as_feed,
    as_line,
    batches,
    parsed,
    rows_of_file,
    slot_of,
    without_zeros,
)
from fluid.reading.decorators import in_processes
from fluid.recording.variable import Variable
from runtime.prefetching_reader import prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["DatasetBase", "DatasetFactory", "InMemoryDataset", "QueueDataset"]

BatchFeed: TypeAlias = dict[str, Array | LoDTensor]
"""A batch by variable: arrays, and LoDTensors for slots of any length."""


class ExchangingWorkers(Protocol):
    """What is used of a fleet, whose workers exchange samples."""

    def worker_num(self) -> int:
        """Return the number of workers."""
        ...

    def worker_index(self) -> int:
        """Return the index of this worker."""
        ...

    def all_reduce_worker(self, input: Array, output: Array) -> None:
        """Sum an array over all workers into `output`."""
        ...


class DatasetFactory:
    """Makes datasets by the name of their class."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        """A QueueDataset or an InMemoryDataset; ValueError for another name.

        >>> DatasetFactory().create_dataset("InMemoryDataset").get_memory_data_size()
        0
        """
        kinds = {cls.__name__: cls for cls in (QueueDataset, InMemoryDataset)}
        if datafeed_class not in kinds:
            hint = did_you_mean(datafeed_class, kinds) or f"there are {', '.join(kinds)}"
            raise ValueError(f"datafeed class {datafeed_class} does not exist: {hint}")
        return kinds[datafeed_class]()


class DatasetBase:
    """A list of sample files, the command that converts each to lines, and the variables they feed.

    `fluid.dataset.multi_slot` describes the line format. Call `set_use_var`, `set_filelist` and
    `set_batch_size` before training.
    """

    def __init__(self) -> None:
        self.thread_num, self.filelist = 1, list[str]()
        self.batch_size, self._command = 1, "cat"
        self._slots: list[SampleSlot] = []
        self._marks = 0
        self.fea_eval = False

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that reads a file on stdin and prints samples as lines."""
        self._command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the batch size; raises ValueError unless it is positive."""
        if batch_size < 1:
            raise ValueError(f"a batch has one sample at least, not {batch_size}")
        self.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of reader processes; training steps run sequentially."""
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files to read."""
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables of the samples, in the order of the line's fields.

        Raises ValueError for dtypes other than float32 and int64.
        """
        self._slots = [slot_of(var) for var in var_list]

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Accepted without effect: files are local, or the pipe command fetches them."""

    def set_download_cmd(self, download_cmd: str) -> None:
        """Accepted without effect: files are local, or the pipe command fetches them."""

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Enable `slots_shuffle`, over at least `record_candidate_size` samples."""
        self.fea_eval = fea_eval

    def slots_shuffle(self, slots: Iterable[str]) -> None:
        """Shuffle the values of slots among the samples in memory; here there are none."""

    def desc(self) -> str:
        """The settings in protobuf text format, as `DataFeedDesc` reads them."""
        return feed_text(self.proto_desc)

    @property
    def proto_desc(self) -> DataFeed:
        """The settings as a DataFeed message."""
        slots = [
            DescribedSlot(
                slot.name,
                "float" if slot.is_float else "uint64",
                slot.shape is not None,
                True,
                [-1, *(slot.shape or ())] if slot.shape is not None else [],
            )
            for slot in self._slots
        ]
        feed = DataFeed(batch_size=self.batch_size, pipe_command=self._command)
        feed.multi_slot_desc.slots = slots
        return feed

    def _expect_ready(self) -> None:
        missing = [
            name
            for name, value in (("set_use_var", self._slots), ("set_filelist", self.filelist))
            if not value
        ]
        if missing:
            raise ValueError(f"a dataset needs {' and '.join(missing)} before it is read")

    def _rows(self, files: Iterable[str]) -> Iterator[Row]:
        for file in files:
            yield from rows_of_file(file, self._command, self._slots, self._marks)

    def _shares(self) -> list[list[str]]:
        """The files of each reader process."""
        count = max(1, min(self.thread_num, len(self.filelist)))
        return [self.filelist[number::count] for number in range(count)]

    def feeds(self) -> Iterator[BatchFeed]:
        """Batches as feeds, prefetched while steps run."""
        raise NotImplementedError


class QueueDataset(DatasetBase):
    """A dataset that is streamed during training and not kept. Each process forms
    its own batches.
    """

    def local_shuffle(self) -> None:
        """Raise NotImplementedError: a streamed dataset cannot be shuffled."""
        raise NotImplementedError("QueueDataset keeps no samples to shuffle: use InMemoryDataset")

    def global_shuffle(self, fleet: ExchangingWorkers | None = None) -> None:
        """Raise NotImplementedError: a streamed dataset cannot be shuffled."""
        self.local_shuffle()

    def feeds(self) -> Iterator[BatchFeed]:
        """Batches as feeds, prefetched while steps run."""
        self._expect_ready()
        for rows in prefetched(self._batches, 2 * len(self._shares())):
            yield as_feed(rows, self._slots)

    def _batches(self) -> Iterator[list[Row]]:
        shares = self._shares()
        if len(shares) == 1:
            return self._batches_of(shares[0])
        return in_processes([partial(self._batches_of, share) for share in shares])

    def _batches_of(self, files: Sequence[str]) -> Iterator[list[Row]]:
        return batches(self._rows(files), self.batch_size)


class InMemoryDataset(DatasetBase):
    """A dataset in memory, which can be shuffled locally or over all trainers.

    In slots with any number of values, zeros are dropped, as in release 1.8.5.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Row] = []
        self.parse_ins_id = self.parse_content = False
        self._loading: Future[None] | None = None

    def load_into_memory(self) -> None:
        """Read all files."""
        self._expect_ready()
        shares = self._shares()
        read = [partial(self._rows, share) for share in shares]
        self._kept = list(read[0]() if len(read) == 1 else in_processes(read))

    def _rows(self, files: Iterable[str]) -> Iterator[Row]:
        return (without_zeros(row, self._slots) for row in super()._rows(files))

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Read all files in the background; `wait_preload_done` waits for the end."""
        self._expect_ready()
        self.thread_num = thread_num or self.thread_num
        pool = ThreadPoolExecutor(1)
        self._loading = pool.submit(self.load_into_memory)
        pool.shutdown(wait=False)

    def wait_preload_done(self) -> None:
        """Wait until the files are read; raises the errors of reading."""
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.result()

    def local_shuffle(self) -> None:
        """Shuffle the samples of this process with NumPy's generator (`numpy.random.seed`)."""
        self._kept = [self._kept[i] for i in np.random.permutation(len(self._kept))]

    def global_shuffle(self, fleet: ExchangingWorkers | None = None, thread_num: int = 12) -> None:
        """Shuffle the samples of all workers of a fleet, and redistribute them.

        Collective: every worker must call it. Without a fleet it is `local_shuffle`.
        """
        if fleet is None or fleet.worker_num() < 2:
            self.local_shuffle()
            return
        lines = [as_line(row, self._slots) for row in self._kept]
        everyone, seed = _gathered(fleet, b"\n".join(lines)), int(np.random.randint(1 << 30))
        order = np.random.RandomState(_sum(fleet, [seed])[0] % (1 << 32)).permutation(len(everyone))
        mine: list[int] = order[fleet.worker_index() :: fleet.worker_num()].tolist()
        self._kept = [parsed(everyone[i], self._slots, "a shuffled sample") for i in mine]

    def slots_shuffle(self, slots: Iterable[str]) -> None:
        """Permute the values of these slots among the samples.

        The loss in a metric measures how much a slot matters. Nothing changes before
        `set_fea_eval`; raises ValueError for a slot that is not in `set_use_var`.
        """
        slot_names = [slot.name for slot in self._slots]
        wanted = sorted(set(slots))
        for name in wanted:
            if name not in slot_names:
                raise ValueError(f"there is no slot {name!r}; there are {', '.join(slot_names)}")
        for index in [slot_names.index(name) for name in wanted] if self.fea_eval else []:
            column = [row[index] for row in self._kept]
            for row, place in zip(self._kept, np.random.permutation(len(column)), strict=True):
                row[index] = column[place]

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether each line begins with `1 id`, the id of the sample, which is skipped."""
        self.parse_ins_id = parse_ins_id
        self._marks = self.parse_ins_id + self.parse_content

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether each line has `1 text` before the values, after any id; it is skipped."""
        self.parse_content = parse_content
        self._marks = self.parse_ins_id + self.parse_content

    def release_memory(self) -> None:
        """Free the samples."""
        self._kept = []

    def get_memory_data_size(self, fleet: ExchangingWorkers | None = None) -> int:
        """Number of samples in memory, here or over all workers of a fleet."""
        count = len(self._kept)
        return count if fleet is None else int(_sum(fleet, [count])[0])

    def get_shuffle_data_size(self, fleet: ExchangingWorkers | None = None) -> int:
        """Number of samples after shuffling, here or over all workers of a fleet."""
        return self.get_memory_data_size(fleet)

    def set_queue_num(self, queue_num: int) -> None:
        """Accepted without effect: samples are one list."""

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Accepted without effect: samples are exchanged in one message."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Accepted without effect: samples are exchanged in one message."""

    def feeds(self) -> Iterator[BatchFeed]:
        """Batches of the samples in memory, once they are read."""
        self.wait_preload_done()
        for rows in batches(self._kept, self.batch_size):
            yield as_feed(rows, self._slots)


def _sum(fleet: ExchangingWorkers, numbers: Sequence[int] | Array) -> Array:
    """Element-wise sum of integers over all workers."""
    total = np.zeros(len(numbers), np.int64)
    fleet.all_reduce_worker(np.asarray(numbers, np.int64), total)
    return total


def _gathered(fleet: ExchangingWorkers, text: bytes) -> list[bytes]:
    """Gather the lines of all workers, in rank order."""
    words = _as_words(text)
    sizes = np.zeros(fleet.worker_num() + 1, np.int64)
    sizes[fleet.worker_index() + 1] = len(words)
    ends = np.cumsum(_sum(fleet, sizes))
    everyone = np.zeros(ends[-1], np.int64)
    start = ends[fleet.worker_index()]
    everyone[start : start + len(words)] = words
    return [line for line in _as_bytes(_sum(fleet, everyone)).split(b"\n") if line]


def _as_words(text: bytes) -> Array:
    """Pack six bytes into each integer; a fleet sums numbers exactly up to 2^53."""
    padded = np.frombuffer(text + b"\n" * (-len(text) % 6), np.uint8).reshape(-1, 6)
    return np.pad(padded, ((0, 0), (0, 2))).view("<i8")[:, 0]


def _as_bytes(words: Array) -> bytes:
    """Undo `_as_words`, but for the padding."""
    return words.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :6].tobytes()
