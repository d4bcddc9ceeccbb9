"""A dataset in memory, shuffled here or over all workers of a fleet."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from fluid.dataset.base import DatasetBase
from fluid.dataset.exchange import ExchangingWorkers, gathered_lines, sum_over_workers
from fluid.dataset.multi_slot import as_line, from_line

__all__ = ["InMemoryDataset"]


class InMemoryDataset(DatasetBase):
    """A dataset in memory, which can be shuffled locally or over all trainers.

    In slots with any number of values, zeros are dropped, as in release 1.8.5.
    """

    reader = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self.is_user_set_queue_num = False
        self.queue_num: int | None = None
        self.parse_ins_id = self.parse_content = self.parse_logkey = False
        self.merge_by_sid = True
        self.enable_pv_merge = self.merge_by_lineid = False
        self.fleet_send_batch_size: int | None = None
        self.fleet_send_sleep_seconds: int | None = None

    def _prepare_to_run(self) -> None:
        self.thread_num = max(1, self.thread_num)
        self.queue_num = self.queue_num or self.thread_num
        native = self.dataset
        native.set_thread_num(self.thread_num)
        native.set_parse_ins_id(self.parse_ins_id)
        native.set_parse_content(self.parse_content)
        native.set_parse_logkey(self.parse_logkey)
        native.set_merge_by_sid(self.merge_by_sid)
        native.set_enable_pv_merge(self.enable_pv_merge)
        native.feed = self.proto_desc

    def set_feed_type(self, data_feed_type: str) -> None:
        """Set the name of the reader in the description."""
        self.proto_desc.name = data_feed_type

    def set_queue_num(self, queue_num: int) -> None:
        """Set a number of queues without effect: samples are one list."""
        self.is_user_set_queue_num = True
        self.queue_num = queue_num

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Set whether each line begins with `1 id`, the id of the sample."""
        self.parse_ins_id = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Set whether each line has `1 text` before the values, after any id; it is skipped."""
        self.parse_content = parse_content

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """Set whether each line begins with `1 key`, whose 32 digits have search and rank."""
        self.parse_logkey = parse_logkey

    def set_merge_by_sid(self, merge_by_sid: bool) -> None:
        """Set whether a page view has all samples of a search, or one."""
        self.merge_by_sid = merge_by_sid

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """Set whether `preprocess_instance` groups samples by page views."""
        self.enable_pv_merge = enable_pv_merge

    def preprocess_instance(self) -> None:
        """Group the samples by page views, if `set_enable_pv_merge` is set."""
        self.dataset.preprocess_instance()

    def set_current_phase(self, current_phase: int) -> None:
        """Set the phase of training: 1 takes batches of page views, 0 batches of samples."""
        self.dataset.set_current_phase(current_phase)

    def postprocess_instance(self) -> None:
        """Take the samples out of the page views again."""
        self.dataset.postprocess_instance()

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Accepted without effect: samples are exchanged in one message."""
        self.fleet_send_batch_size = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Accepted without effect: samples are exchanged in one message."""
        self.fleet_send_sleep_seconds = fleet_send_sleep_seconds

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Merge `merge_size` samples of one id into one, in `global_shuffle`.

        Lines begin with `1 id`. Ids with another number of samples are dropped, with a warning.
        """
        self.dataset.set_merge_by_lineid(merge_size)
        self.merge_by_lineid = self.parse_ins_id = True

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int) -> None:
        """Accepted without effect: there are no local tables to fill with the ids."""
        self.dataset.set_generate_unique_feasigns(generate_uni_feasigns)
        self.gen_uni_feasigns = generate_uni_feasigns
        self.local_shard_num = shard_num

    def generate_local_tables_unlock(
        self,
        table_id: int,
        fea_dim: int,
        read_thread_num: int,
        consume_thread_num: int,
        shard_num: int,
    ) -> None:
        """Accepted without effect: there are no local tables."""

    def load_into_memory(self) -> None:
        """Read all files."""
        self._prepare_to_run()
        self.dataset.load_into_memory()

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Read all files in the background; `wait_preload_done` waits for the end."""
        self._prepare_to_run()
        self.dataset.set_thread_num(thread_num or self.thread_num)
        self.dataset.preload_into_memory()

    def wait_preload_done(self) -> None:
        """Wait until the files are read; raises the errors of reading."""
        self.dataset.wait_preload_done()

    def local_shuffle(self) -> None:
        """Shuffle the samples of this process with NumPy's generator (`numpy.random.seed`)."""
        self.dataset.local_shuffle()

    def global_shuffle(self, fleet: ExchangingWorkers | None = None, thread_num: int = 12) -> None:
        """Shuffle the samples of all workers of a fleet, and redistribute them.

        Collective: every worker must call it. Without a fleet it is `local_shuffle`. After
        `set_merge_by_lineid`, samples of one id are merged; they go to the same worker.
        """
        if fleet is not None and fleet.worker_num() > 1:
            self._exchange(fleet)
        self.dataset.global_shuffle(thread_num)
        if self.merge_by_lineid:
            self.dataset.merge_by_lineid()

    def _exchange(self, fleet: ExchangingWorkers) -> None:
        native, slots = self.dataset, self.dataset.slots
        lines = [as_line(sample, slots) for sample in native.samples]
        everyone = gathered_lines(fleet, b"\n".join(lines))
        seed = sum_over_workers(fleet, [int(np.random.randint(1 << 30))])[0] % (1 << 32)
        worker, workers = fleet.worker_index(), fleet.worker_num()
        if self.merge_by_lineid:
            mine = [line for line in everyone if _worker(line, workers) == worker]
        else:
            order: list[int] = np.random.RandomState(seed).permutation(len(everyone)).tolist()
            mine = [everyone[i] for i in order[worker::workers]]
        native.samples = [from_line(line, slots) for line in mine]

    def release_memory(self) -> None:
        """Free the samples."""
        self.dataset.release_memory()

    def get_pv_data_size(self) -> int:
        """Number of page views."""
        return self.dataset.get_pv_data_size()

    def get_memory_data_size(self, fleet: ExchangingWorkers | None = None) -> int:
        """Number of samples in memory, here or over all workers of a fleet."""
        count = self.dataset.get_memory_data_size()
        return count if fleet is None else int(sum_over_workers(fleet, [count])[0])

    def get_shuffle_data_size(self, fleet: ExchangingWorkers | None = None) -> int:
        """Number of samples after shuffling, here or over all workers of a fleet."""
        return self.get_memory_data_size(fleet)


def _worker(line: bytes, workers: int) -> int:
    """The worker that merges the samples of the id of a line."""
    return crc32(line.split(maxsplit=2)[1]) % workers
