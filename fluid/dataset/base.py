"""The settings that all datasets have."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence

from fluid.data_feed_desc import DataFeed, feed_text
from fluid.dataset.multi_slot import described_slot
from fluid.dataset.native import BatchFeed, NativeDataset
from fluid.recording.variable import Variable

__all__ = ["DatasetBase"]


class DatasetBase:
    """A list of sample files, the command that converts each to lines, and the variables they feed.

    `fluid.dataset.multi_slot` describes the line format. Call `set_use_var`, `set_filelist` and
    `set_batch_size` before training. `proto_desc` is the description that `desc` prints, `dataset`
    what reads the files.
    """

    reader: str | None = None
    """The name of the reader in the description."""

    def __init__(self) -> None:
        self.proto_desc = DataFeed(name=self.reader, pipe_command="cat")
        self.dataset = NativeDataset("MultiSlotDataset")
        self.thread_num, self.filelist = 1, list[str]()
        self.fea_eval = False

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that reads a file on stdin and prints samples as lines."""
        self.proto_desc.pipe_command = pipe_command

    def set_rank_offset(self, rank_offset: str) -> None:
        """Set the name of the variable for the rank offsets of page views."""
        self.proto_desc.rank_offset = rank_offset

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Enable `slots_shuffle`, over at least `record_candidate_size` samples."""
        if fea_eval:
            self.dataset.set_fea_eval(fea_eval, record_candidate_size)
        self.fea_eval = fea_eval

    def slots_shuffle(self, slots: Iterable[str]) -> None:
        """Permute the values of these slots among the samples in memory.

        The loss in a metric measures how much a slot matters. Nothing changes before
        `set_fea_eval`; warns of a slot that is not in `set_use_var`.
        """
        if self.fea_eval:
            self.dataset.slots_shuffle(slots)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the batch size; raises ValueError unless it is positive."""
        if batch_size < 1:
            raise ValueError(f"a batch has one sample at least, not {batch_size}")
        self.proto_desc.batch_size = batch_size

    def set_pv_batch_size(self, pv_batch_size: int) -> None:
        """Set the number of page views per batch."""
        self.proto_desc.pv_batch_size = pv_batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of reader processes; training steps run sequentially."""
        self.dataset.set_thread_num(thread_num)
        self.thread_num = thread_num

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files to read."""
        self.dataset.set_filelist(filelist)
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables of the samples, in the order of the line's fields.

        Raises ValueError for dtypes other than float32 and int64.
        """
        self.proto_desc.multi_slot_desc.slots = [described_slot(var) for var in var_list]

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Set the file system and user of paths that begin with `hdfs:` or `afs:`.

        `$HADOOP_HOME/bin/hadoop` reads them.
        """
        self.dataset.set_hdfs_config(fs_name, fs_ugi)

    def set_download_cmd(self, download_cmd: str) -> None:
        """Set the command that prints a file whose path begins with `hdfs:` or `afs:`."""
        self.dataset.set_download_cmd(download_cmd)

    def desc(self) -> str:
        """The settings in protobuf text format, as `DataFeedDesc` reads them."""
        return feed_text(self.proto_desc)

    def feeds(self, drop_last: bool = False, readers: int = 1) -> Iterator[BatchFeed]:
        """Batches as feeds, prefetched while steps run; see `NativeDataset.feeds`."""
        self._prepare_to_run()
        if not self.filelist:
            warnings.warn("the dataset has no files: call set_filelist", stacklevel=2)
        yield from self.dataset.feeds(drop_last, readers)
        self._finish_to_run()

    def _prepare_to_run(self) -> None:
        """Pass the settings on to the reader; there are at most as many threads as files."""
        self.thread_num = max(1, min(self.thread_num, len(self.filelist)))
        self.dataset.set_thread_num(self.thread_num)
        self.dataset.feed = self.proto_desc
        self.dataset.create_readers()

    def _finish_to_run(self) -> None:
        self.dataset.destroy_readers()

    def _dynamic_adjust_before_train(self, thread_num: int) -> None:
        """Without effect: the number of readers is that of `set_thread`."""

    def _dynamic_adjust_after_train(self) -> None:
        """Without effect: the number of readers is that of `set_thread`."""
