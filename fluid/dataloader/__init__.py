"""The datasets and batch samplers of `fluid.io.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["BatchSampler", "Dataset", "default_collate_fn"]


class Dataset:
    """A map-style dataset; subclasses define `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        """The sample at an index: a tuple of fields, or a single array."""
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        """Number of samples."""
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")


class BatchSampler:
    """Indices of each batch, of a dataset's samples or of `indices`.

    With `shuffle` the order is random at every iteration, from NumPy's global generator, as
    in the reference. Raises AssertionError for other kinds of arguments, as it does.

    >>> list(BatchSampler(indices=[3, 4, 5], batch_size=2))
    [[3, 4], [5]]
    >>> len(BatchSampler(indices=[3, 4, 5], batch_size=2, drop_last=True))
    1
    """

    def __init__(
        self,
        dataset: Dataset | None = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if (dataset is None) == (indices is None):
            raise AssertionError("either dataset or indices should be set, and not both")
        _expect(dataset is None or isinstance(dataset, Dataset), "dataset", "a Dataset", dataset)
        _expect(isinstance(indices, list | tuple | None), "indices", "a list or tuple", indices)
        size_fits = type(batch_size) is int and batch_size > 0
        _expect(size_fits, "batch_size", "a positive integer", batch_size)
        _expect(isinstance(shuffle, bool), "shuffle", "a boolean value", shuffle)
        _expect(isinstance(drop_last, bool), "drop_last", "a boolean value", drop_last)
        self.indices = list(range(len(dataset)) if indices is None else indices)
        self.shuffle = shuffle
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        if self.shuffle:
            np.random.shuffle(self.indices)
        for index in range(len(self)):
            yield self.indices[index * self.batch_size : (index + 1) * self.batch_size]

    def __len__(self) -> int:
        whole, left = divmod(len(self.indices), self.batch_size)
        return whole + (left > 0 and not self.drop_last)


def default_collate_fn(batch: Sequence[Any]) -> list[np.ndarray]:
    """The fields of a batch of samples, each stacked along a new first axis.

    >>> [field.tolist() for field in default_collate_fn([(1, [2, 3]), (4, [5, 6])])]
    [[1, 4], [[2, 3], [5, 6]]]
    """
    if isinstance(batch[0], np.ndarray):
        return [np.stack(batch)]
    return [np.stack(field) for field in zip(*batch, strict=True)]


def _expect(holds: bool, name: str, wanted: str, given: Any) -> None:
    if not holds:
        raise AssertionError(f"{name} should be {wanted}, but received {given!r:.60}")
