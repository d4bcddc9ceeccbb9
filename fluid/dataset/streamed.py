"""Datasets that are streamed during training and not kept."""

from __future__ import annotations

from typing import NoReturn

from fluid.dataset.base import DatasetBase
from fluid.dataset.exchange import ExchangingWorkers

__all__ = ["FileInstantDataset", "QueueDataset"]


class _Streamed(DatasetBase):
    def local_shuffle(self) -> None:
        """Raise NotImplementedError: a streamed dataset cannot be shuffled."""
        self._refuse("local")

    def global_shuffle(self, fleet: ExchangingWorkers | None = None) -> None:
        """Raise NotImplementedError: a streamed dataset cannot be shuffled."""
        self._refuse("global")

    def _refuse(self, kind: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} does not support {kind} shuffle, "
            f"please use InMemoryDataset for {kind}_shuffle"
        )


class QueueDataset(_Streamed):
    """A dataset that is streamed during training and not kept. Each process forms
    its own batches.
    """

    reader = "MultiSlotDataFeed"


class FileInstantDataset(_Streamed):
    """A dataset of binary files, which release 1.8.5 cannot read either.

    Training raises NotImplementedError.
    """

    reader = "MultiSlotFileInstantDataFeed"
