"""Batches of one process among several, `paddle.incubate.hapi.distributed` of release 1.8.5."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from fluid.dataloader import BatchSampler
from fluid.dygraph.parallel import ParallelEnv

__all__ = ["DistributedBatchSampler"]


class DistributedBatchSampler(BatchSampler):
    """The indices of each batch of this process, so that all processes share a dataset.

    Every process takes the same number of samples: the first ones are taken again where the
    processes do not divide them. Batches of the processes alternate. With `shuffle` the order
    depends on the epoch alone, and is another one in each iteration. Raises AssertionError for
    arguments of other kinds.

    >>> list(DistributedBatchSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, dataset: Sized, batch_size: int, shuffle: bool = False, drop_last: bool = False
    ) -> None:
        super().__init__(
            indices=list(range(len(dataset))),
            shuffle=shuffle,
            batch_size=batch_size,
            drop_last=drop_last,
        )
        process = ParallelEnv()
        self.dataset = dataset
        self.nranks, self.local_rank = process.nranks, process.local_rank
        self.epoch = 0
        self.num_samples = -(-len(dataset) // self.nranks)
        self.total_size = self.num_samples * self.nranks

    def __iter__(self) -> Iterator[list[int]]:
        own = self._own_indices()
        for first in range(0, len(self) * self.batch_size, self.batch_size):
            yield own[first : first + self.batch_size]

    def __len__(self) -> int:
        whole, left = divmod(self.num_samples, self.batch_size)
        return whole + (left > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which the next order depends on."""
        self.epoch = epoch

    def _own_indices(self) -> list[int]:
        """The indices of this process, in the order of its batches."""
        count = len(self.indices)
        indices = np.resize(np.arange(count), self.total_size) if count else np.arange(0)
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(indices)
            self.epoch += 1
        in_turn = self.total_size // (self.batch_size * self.nranks) * self.batch_size
        turns = indices[: in_turn * self.nranks].reshape(-1, self.nranks, self.batch_size)
        rest = indices[in_turn * self.nranks :].reshape(self.nranks, -1)
        own = [*turns[:, self.local_rank].ravel(), *rest[self.local_rank]]
        return [int(index) for index in own]
