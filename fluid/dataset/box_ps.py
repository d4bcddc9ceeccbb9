"""The dataset of BoxPS, Baidu's parameter server on GPUs, without that server."""

from __future__ import annotations

from fluid.dataset.in_memory import InMemoryDataset
from fluid.dataset.native import NativeDataset

__all__ = ["BoxPS", "BoxPSDataset"]


class BoxPS:
    """The passes of a dataset, without the server that keeps its parameters."""

    def __init__(self, dataset: NativeDataset) -> None:
        self._dataset = dataset

    def set_date(self, year: int, month: int, day: int) -> None:
        """Without effect: there is no server."""

    def begin_pass(self) -> None:
        """Without effect: there is no server to load parameters from."""

    def end_pass(self, need_save_delta: bool) -> None:
        """Without effect: there is no server to save parameters to."""

    def wait_feed_pass_done(self) -> None:
        """Wait until the files of `preload_into_memory` are read."""
        self._dataset.wait_preload_done()

    def load_into_memory(self) -> None:
        """Read all files."""
        self._dataset.load_into_memory()

    def preload_into_memory(self) -> None:
        """Read all files in the background."""
        self._dataset.preload_into_memory()


class BoxPSDataset(InMemoryDataset):
    """An InMemoryDataset that trains in passes, in batches of page views or of samples.

    There is no BoxPS server here, as in release 1.8.5 built without it: a pass moves no parameters.
    """

    reader = "PaddleBoxDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self.boxps = BoxPS(self.dataset)

    def set_date(self, date: str) -> None:
        """Set the date of a pass, `20200131`; ValueError for anything but digits."""
        self.boxps.set_date(int(date[:4]), int(date[4:6]), int(date[6:]))

    def begin_pass(self) -> None:
        """Without effect: there is no server to load parameters from."""
        self.boxps.begin_pass()

    def end_pass(self, need_save_delta: bool) -> None:
        """Without effect: there is no server to save parameters to."""
        self.boxps.end_pass(need_save_delta)
