"""The loader of a generator in eager mode: batches are lists of variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fluid.eager.mode import to_variable
from fluid.reading import decorators as reader_decorators
from fluid.reading.generator_loader import (
    GeneratorLoader,
    Places,
    SampleLists,
    Source,
    to_tensors,
)
from fluid.reading.reader_errors import checked
from runtime.prefetching_reader import prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["EagerLoader", "as_variables"]


class EagerLoader(GeneratorLoader):
    """The result of `DataLoader.from_generator` in eager mode: iterable, yielding lists.

    Raises ValueError without a capacity.
    """

    def __init__(self, capacity: int) -> None:  # pyright: ignore[reportMissingSuperCall] - no variables
        if not capacity:
            raise ValueError("Please give value to capacity: how many batches are made ahead")
        self._capacity = capacity
        self._source: Source | None = None
        self._iterable = True

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches from the first, as lists of variables."""
        source = self._source
        if source is None:
            raise AssertionError("the data source of the reader has not been set yet")
        batches = checked(_tensors(batch) for batch in source())
        ahead = prefetched(lambda: batches, self._capacity)
        return self._remembered(as_variables(batch) for batch in ahead)

    def set_sample_generator(
        self, reader: Source, batch_size: float, drop_last: bool = True, places: Places = None
    ) -> GeneratorLoader:
        """Use a source of single samples, with a field per variable, and batch them."""
        if batch_size <= 0:
            raise AssertionError(f"batch_size must be larger than 0, but received {batch_size}")
        batches = reader_decorators.batch(reader, batch_size, drop_last)
        return self.set_sample_list_generator(batches, places)

    def set_sample_list_generator(
        self, reader: SampleLists, places: Places = None
    ) -> GeneratorLoader:
        """Use a source of sample lists; the fields of a batch are stacked."""
        return self.set_batch_generator(
            lambda: ([list(field) for field in zip(*samples, strict=True)] for samples in reader())
        )

    def set_batch_generator(self, reader: Source, places: Places = None) -> GeneratorLoader:
        """Use a source of whole batches: an array or a LoDTensor per variable."""
        self._source = reader
        return self


def _tensors(batch: Sequence[object]) -> list[LoDTensor]:
    return to_tensors(batch, [f"field {number}" for number in range(len(batch))])


def as_variables(batch: Sequence[LoDTensor]) -> list[Any]:
    """Return the tensors of a batch as eager variables."""
    return [to_variable(np.array(tensor)) for tensor in batch]
