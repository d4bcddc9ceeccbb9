"""`core.Dataset` of release 1.8: what the classes of `fluid.dataset` read and keep."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from compiler.ir.types import Array
from fluid.data_feed_desc import DataFeed, parsed_feed
from fluid.dataset.merging import merged_by_id
from fluid.dataset.multi_slot import (
    Sample,
    SampleSlot,
    as_feed,
    batches,
    samples_of_file,
    slot_of,
    without_zeros,
)
from fluid.dataset.page_views import PageView, page_views, rank_offsets
from fluid.dataset.sources import LineSource
from fluid.reading.decorators import in_processes
from runtime.prefetching_reader import prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["BatchFeed", "NativeDataset"]

BatchFeed: TypeAlias = dict[str, Array | LoDTensor]
"""A batch by variable: arrays, and LoDTensors for slots of any length."""

STREAMS = "MultiSlotDataFeed"
IN_MEMORY = ("MultiSlotInMemoryDataFeed", "PaddleBoxDataFeed")
DEFAULT_BATCH_SIZE = 32
"""That of a description without one (`data_feed.proto`)."""


class _Settings:
    """Settings that scripts write and read."""

    def __init__(self) -> None:
        self.feed = DataFeed()
        self.source = LineSource()
        self._files: list[str] = []
        self._threads = self._trainers = 1
        self._send_batch_size = 1024

    def set_data_feed_desc(self, data_feed_desc: str) -> None:
        """Set the reader, batch size and slots, as protobuf text."""
        self.feed = parsed_feed(data_feed_desc, "the data feed description")

    def get_data_feed_desc(self) -> DataFeed:
        """The reader, batch size and slots."""
        return self.feed

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files to read."""
        self._files = list(filelist)

    def get_filelist(self) -> list[str]:
        """The files to read."""
        return self._files

    def set_thread_num(self, thread_num: int) -> None:
        """Set the number of readers."""
        self._threads = thread_num

    def get_thread_num(self) -> int:
        """The number of readers."""
        return self._threads

    def set_trainer_num(self, trainer_num: int) -> None:
        """Set the number of trainers that exchange samples."""
        self._trainers = trainer_num

    def get_trainer_num(self) -> int:
        """The number of trainers that exchange samples."""
        return self._trainers

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int) -> None:
        """Store the number of samples per message; samples are exchanged in one message."""
        self._send_batch_size = fleet_send_batch_size

    def get_fleet_send_batch_size(self) -> int:
        """The number of samples per message."""
        return self._send_batch_size

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Set the file system and the user by which `hadoop` reads paths with `hdfs:` or `afs:`."""
        self.source.fs_name, self.source.fs_ugi = fs_name, fs_ugi

    def get_hdfs_config(self) -> tuple[str, str]:
        """The file system and its user."""
        return self.source.fs_name, self.source.fs_ugi

    def set_download_cmd(self, download_cmd: str) -> None:
        """Set the command that prints files whose paths begin with `hdfs:` or `afs:`."""
        self.source.download_cmd = download_cmd

    def get_download_cmd(self) -> str:
        """The command that prints files of a remote file system."""
        return self.source.download_cmd


class NativeDataset(_Settings):
    """Files, how they are read, and samples in memory.

    The name of the reader in its description decides whether batches are streamed from the files or
    are made of the samples in memory. Raises ValueError for any class but "MultiSlotDataset".
    """

    def __init__(self, dataset_class: str = "MultiSlotDataset") -> None:
        super().__init__()
        if dataset_class != "MultiSlotDataset":
            raise ValueError(f"dataset class {dataset_class!r}: there is only 'MultiSlotDataset'")
        self.samples: list[Sample] = []
        self._page_views: list[PageView] = []
        self._loading: Future[None] | None = None
        self._marks = dict.fromkeys(("id", "content", "log key"), False)
        self._merge_size: int | None = None
        self._merges_page_views, self._by_search, self._phase = False, True, 1
        self._shuffles_slots = False

    # Settings of reading

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether each line begins with `1 id`."""
        self._marks["id"] = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether each line has `1 text` before the values; it is skipped."""
        self._marks["content"] = parse_content

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """Set whether each line begins with `1 key`, where the key has the search of the sample."""
        self._marks["log key"] = parse_logkey

    def set_merge_by_lineid(self, merge_size: int) -> None:
        """Set how many samples of one id `merge_by_lineid` merges; 0 for any number."""
        self._merge_size = merge_size
        self._marks["id"] = True

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """Set whether `preprocess_instance` groups samples by page views."""
        self._merges_page_views = enable_pv_merge

    def set_merge_by_sid(self, merge_by_sid: bool) -> None:
        """Set whether a page view has all samples of a search, or one."""
        self._by_search = merge_by_sid

    def set_current_phase(self, current_phase: int) -> None:
        """Set the phase of training: 1 takes batches of page views, 0 batches of samples."""
        self._phase = current_phase

    def set_fea_eval(self, fea_eval: bool, record_candidate_size: int) -> None:
        """Set whether `slots_shuffle` is effective."""
        self._shuffles_slots = fea_eval

    # Without effect: there are neither channels, reader objects nor local tables

    def create_channel(self) -> None:
        """Without effect: samples are one list."""

    def create_readers(self) -> None:
        """Without effect: readers start with the first batch."""

    def destroy_readers(self) -> None:
        """Without effect: readers end with their last batch."""

    def create_preload_readers(self) -> None:
        """Without effect: readers start with the first batch."""

    def destroy_preload_readers(self) -> None:
        """Without effect: readers end with their last batch."""

    def dynamic_adjust_channel_num(self, channel_num: int, discard_remaining_ins: bool) -> None:
        """Without effect: samples are one list."""

    def dynamic_adjust_readers_num(self, thread_num: int) -> None:
        """Without effect: `set_thread_num` sets the number of readers."""

    def set_queue_num(self, channel_num: int) -> None:
        """Without effect: samples are one list."""

    def set_preload_thread_num(self, thread_num: int) -> None:
        """Without effect: `set_thread_num` sets the number of readers."""

    def register_client2client_msg_handler(self) -> None:
        """Without effect: samples are exchanged by the fleet."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int) -> None:
        """Without effect: samples are exchanged in one message."""

    def set_generate_unique_feasigns(self, gen_uni_feasigns: bool) -> None:
        """Without effect: there are no local tables to fill with the ids of the samples."""

    def generate_local_tables_unlock(
        self, table_id: int, fea_dim: int, read_threads: int, consume_threads: int, shards: int
    ) -> None:
        """Without effect: there are no local tables."""

    # Samples in memory

    @property
    def slots(self) -> list[SampleSlot]:
        """The slots of a line. Raises ValueError if there are none."""
        slots = [slot_of(described) for described in self.feed.multi_slot_desc.slots]
        if not slots:
            raise ValueError("a dataset needs set_use_var before it is read")
        return slots

    def load_into_memory(self) -> None:
        """Read all files; without zeros in slots of any length, as release 1.8.5."""
        read = [partial(self._read, share) for share in self._shares()]
        loaded = in_processes(read) if len(read) > 1 else read[0]()
        self.samples = list(loaded)

    def preload_into_memory(self) -> None:
        """Read all files in the background; `wait_preload_done` waits for the end."""
        pool = ThreadPoolExecutor(1)
        self._loading = pool.submit(self.load_into_memory)
        pool.shutdown(wait=False)

    def wait_preload_done(self) -> None:
        """Wait until the files are read; raises the errors of reading."""
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.result()

    def release_memory(self) -> None:
        """Free the samples."""
        self.samples, self._page_views = [], []

    def local_shuffle(self) -> None:
        """Shuffle the samples of this process with NumPy's generator (`numpy.random.seed`)."""
        self.samples = [self.samples[i] for i in np.random.permutation(len(self.samples))]

    def global_shuffle(self, thread_num: int = 12) -> None:
        """Shuffle the samples of this process; a fleet exchanges those of several."""
        self.local_shuffle()

    def slots_shuffle(self, slots: Iterable[str]) -> None:
        """Permute the values of these slots among the samples, once `set_fea_eval` is set.

        Warns of a slot that does not exist.
        """
        slot_names = [slot.name for slot in self.slots]
        wanted = sorted(set(slots))
        for name in wanted:
            if name not in slot_names:
                known = ", ".join(slot_names)
                warnings.warn(f"there is no slot {name!r}; there are {known}", stacklevel=3)
        shuffled = [slot_names.index(name) for name in wanted if name in slot_names]
        for index in shuffled if self._shuffles_slots else []:
            column = [sample.row[index] for sample in self.samples]
            for sample, place in zip(self.samples, np.random.permutation(len(column)), strict=True):
                sample.row[index] = column[place]

    def merge_by_lineid(self) -> None:
        """Merge the samples of each id and shuffle them; nothing before `set_merge_by_lineid`."""
        if self._merge_size is not None:
            self.samples = merged_by_id(self.samples, self._merge_size, self.slots)
            self.local_shuffle()

    def preprocess_instance(self) -> None:
        """Group the samples by page views, if `set_enable_pv_merge` is set."""
        if self._merges_page_views:
            self._page_views = page_views(self.samples, self._by_search)
            self.samples = []

    def postprocess_instance(self) -> None:
        """Take the samples out of the page views again."""
        if self._merges_page_views:
            self.samples = [sample for view in self._page_views for sample in view]

    def get_memory_data_size(self) -> int:
        """Number of samples in memory."""
        return len(self.samples)

    def get_shuffle_data_size(self) -> int:
        """Number of samples in memory."""
        return len(self.samples)

    def get_pv_data_size(self) -> int:
        """Number of page views."""
        return len(self._page_views)

    # Batches

    @property
    def batch_size(self) -> int:
        """The number of samples per batch."""
        return self.feed.batch_size or DEFAULT_BATCH_SIZE

    def feeds(self, drop_last: bool = False, readers: int = 1) -> Iterator[BatchFeed]:
        """Yield batches as feeds, prefetched while steps run; readers take turns.

        Samples in memory are divided among `readers`, files among threads. With `drop_last`,
        batches of fewer samples are left out. Raises NotImplementedError for readers that do not
        exist.
        """
        slots = self.slots if self._files or self.samples else []
        for samples in self._batches(readers):
            if not drop_last or len(samples) == self.batch_size or self._takes_page_views:
                yield self._as_feed(samples, slots)

    def _batches(self, readers: int) -> Iterator[list[Sample]]:
        if self.feed.name in IN_MEMORY:
            self.wait_preload_done()
            views = self._takes_page_views
            return self._batches_of_page_views() if views else self._batches_in_memory(readers)
        if self.feed.name not in (STREAMS, None):
            raise NotImplementedError(
                f"{self.feed.name} is no reader of release 1.8.5 either: create a QueueDataset"
            )
        return self._streamed_batches()

    def _as_feed(self, samples: Sequence[Sample], slots: Sequence[SampleSlot]) -> BatchFeed:
        """Convert a batch to a feed, with the rank offsets of its page views in phase 1."""
        feed = as_feed(samples, slots)
        if self._takes_page_views and self.feed.rank_offset:
            feed[self.feed.rank_offset] = rank_offsets(page_views(samples, self._by_search))
        return feed

    @property
    def _takes_page_views(self) -> bool:
        is_box = self.feed.name == "PaddleBoxDataFeed"
        return is_box and self._merges_page_views and self._phase == 1

    def _batches_of_page_views(self) -> Iterator[list[Sample]]:
        size = self.feed.pv_batch_size or DEFAULT_BATCH_SIZE
        for first in range(0, len(self._page_views), size):
            views = self._page_views[first : first + size]
            yield [sample for view in views for sample in view]

    def _batches_in_memory(self, readers: int) -> Iterator[list[Sample]]:
        """Yield batches of the samples in memory, of which each reader has a contiguous part."""
        share = -(-len(self.samples) // readers) or 1
        parts = [self.samples[at : at + share] for at in range(0, len(self.samples), share)]
        for group in zip_longest(*(batches(part, self.batch_size) for part in parts)):
            yield from filter(None, group)

    def _streamed_batches(self) -> Iterator[list[Sample]]:
        shares = self._shares()
        return prefetched(partial(self._read_batches, shares), 2 * len(shares))

    def _read_batches(self, shares: Sequence[Sequence[str]]) -> Iterator[list[Sample]]:
        if len(shares) == 1:
            return self._batches_of(shares[0])
        return in_processes([partial(self._batches_of, share) for share in shares])

    def _batches_of(self, files: Sequence[str]) -> Iterator[list[Sample]]:
        return batches(self._read(files), self.batch_size)

    def _shares(self) -> list[list[str]]:
        """The files of each reader."""
        count = max(1, min(self._threads, len(self._files)))
        return [self._files[number::count] for number in range(count)]

    def _read(self, files: Sequence[str]) -> Iterator[Sample]:
        slots, marks = self.slots if files else [], sum(self._marks.values())
        source = LineSource(
            **{**vars(self.source), "pipe_command": self.feed.pipe_command or "cat"}
        )
        for file in files:
            for sample in samples_of_file(file, source, slots, marks):
                in_memory = self.feed.name in IN_MEMORY
                yield Sample(without_zeros(sample.row, slots), sample.id) if in_memory else sample
