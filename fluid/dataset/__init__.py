"""File datasets for `Executor.train_from_dataset`.

`base` has what all have in common; `streamed`, `in_memory` and `box_ps` are the kinds. `native` is
what they read and keep: files by `sources`, lines by `multi_slot`, and the samples in memory, which
`merging` and `page_views` group and `exchange` sends to other workers.
"""

from __future__ import annotations

from compiler.errors import did_you_mean
from fluid.dataset.base import DatasetBase
from fluid.dataset.box_ps import BoxPSDataset
from fluid.dataset.in_memory import InMemoryDataset
from fluid.dataset.native import BatchFeed
from fluid.dataset.streamed import FileInstantDataset, QueueDataset

__all__ = [
    "BatchFeed", "BoxPSDataset", "DatasetBase", "DatasetFactory", "FileInstantDataset",
    "InMemoryDataset", "QueueDataset",
]  # fmt: skip


class DatasetFactory:
    """Makes datasets by the name of their class."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> DatasetBase:
        """A dataset of this class; ValueError for a name that does not exist.

        >>> DatasetFactory().create_dataset("InMemoryDataset").get_memory_data_size()
        0
        """
        classes = (QueueDataset, InMemoryDataset, FileInstantDataset, BoxPSDataset)
        kinds = {cls.__name__: cls for cls in classes}
        if datafeed_class not in kinds:
            hint = did_you_mean(datafeed_class, kinds) or f"there are {', '.join(kinds)}"
            raise ValueError(f"datafeed class {datafeed_class} does not exist: {hint}")
        return kinds[datafeed_class]()
