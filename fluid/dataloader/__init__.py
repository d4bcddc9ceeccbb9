"""The datasets and batch samplers of `fluid.io.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from compiler.ir.types import Array

__all__ = ["BatchSampler", "Dataset", "default_collate_fn"]


class Dataset:
    """A map-style dataset; subclasses define `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> object:
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
        _expect("dataset", "a Dataset", dataset, (Dataset, NoneType))
        _expect("indices", "a list or tuple", indices, (list, tuple, NoneType))
        size_fits = type(batch_size) is int and batch_size > 0
        _expect("batch_size", "a positive integer", batch_size, (int,) if size_fits else ())
        _expect("shuffle", "a boolean value", shuffle, (bool,))
        _expect("drop_last", "a boolean value", drop_last, (bool,))
        self.indices = list(range(len(dataset)) if dataset is not None else indices or ())
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


def default_collate_fn(batch: Sequence[object]) -> list[Array]:
    """The fields of a batch of samples, each stacked along a new first axis.

    >>> [field.tolist() for field in default_collate_fn([(1, [2, 3]), (4, [5, 6])])]
    [[1, 4], [[2, 3], [5, 6]]]
    """
    if isinstance(batch[0], np.ndarray):
        return [np.stack(cast(Sequence[Array], batch))]
    samples = cast(Sequence[Iterable[ArrayLike]], batch)
    return [np.stack(field) for field in zip(*samples, strict=True)]


def _expect(name: str, wanted: str, value: object, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        raise AssertionError(f"{name} should be {wanted}, but received {value!r:.60}")
