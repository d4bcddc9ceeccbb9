"""`fluid.io.DataLoader` and `PyReader`: batches prefetched while steps run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from fluid.dataloader import BatchSampler, Dataset, default_collate_fn
from fluid.dataset import BatchFeed, DatasetBase
from fluid.eager import traces
from fluid.framework import Variable, in_dygraph_mode
from fluid.reading.decorators import in_processes
from fluid.reading.eager_loader import EagerLoader, as_variables
from fluid.reading.generator_loader import (
    DataLoaderBase,
    DeviceFeed,
    GeneratorLoader,
    Places,
    SampleLists,
    Source,
    as_places,
    device_feeds,
    to_tensors,
)
from runtime.prefetching_reader import Queue, prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "DataLoader",
    "DataLoaderBase",
    "PyReader",
    "default_collate_fn",
    "keep_data_loader_order",
]


def keep_data_loader_order(*args: bool) -> bool | None:
    """Return whether batches keep the order of their samplers; always true, whatever is set."""
    return None if args else True


class DataLoader(DataLoaderBase):
    """An iterable over the batches of a dataset, as feeds for each place.

    Batches are defined by `batch_sampler`, or by `batch_size`, `shuffle` and `drop_last`;
    `collate_fn` makes arrays of them. Feeds are dicts by the names of `feed_list`, or lists with
    `return_list`. `num_workers` processes load them, each initialized by `worker_init_fn` with its
    index; `timeout` seconds without a batch are an error. With `use_buffer_reader` they are
    prefetched; `use_shared_memory` has no effect here. Raises AssertionError for arguments of
    another type, as the reference does.
    """

    def __init__(
        self,
        dataset: Dataset,
        feed_list: Sequence[Variable] | None = None,
        places: Places = None,
        return_list: bool = False,
        batch_sampler: BatchSampler | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[object]], Sequence[object]] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        _expect_instance(dataset, Dataset, "dataset should be a fluid.dataloader.Dataset")
        listed = return_list or in_dygraph_mode() or bool(feed_list)
        _expect(listed, "feed_list should be set when return_list=False")
        _expect(num_workers >= 0, "num_workers should be a non-negative value")
        _expect(timeout >= 0, "timeout should be a non-negative value")
        by_hand = (batch_size, shuffle, drop_last) != (1, False, False)
        _expect(
            batch_sampler is None or not by_hand,
            "batch_size, shuffle and drop_last should not be set when batch_sampler is given",
        )
        self.dataset = dataset
        self.feed_list = list(feed_list or ())
        self.places = as_places(traces.place() if places is None and in_dygraph_mode() else places)
        self.return_list = return_list
        self.batch_sampler = batch_sampler or BatchSampler(
            dataset, shuffle=shuffle, batch_size=batch_size, drop_last=drop_last
        )
        self.collate_fn = collate_fn or default_collate_fn
        self.num_workers = num_workers
        self.use_buffer_reader = use_buffer_reader
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the feeds from the first: lists with one for each place.

        In eager mode, over batches as lists of variables.
        """
        places = len(self.places)
        names = None if self.return_list else [var.name for var in self.feed_list]
        ahead = prefetched(self._batches, 2 * places) if self.use_buffer_reader else self._batches()
        if in_dygraph_mode():
            return self._remembered(as_variables(batch) for batch in ahead)
        return self._remembered(device_feeds(ahead, names, places, drop_last=True))

    def _batches(self) -> Iterator[list[LoDTensor]]:
        for batch in self._in_processes() if self.num_workers else self._load(self.batch_sampler):
            names = [var.name for var in self.feed_list] or [str(i) for i in range(len(batch))]
            yield to_tensors(batch, names)

    def _in_processes(self) -> Iterator[Sequence[object]]:
        """Yield the batches in order, loaded by the worker processes round-robin."""
        chosen = list(self.batch_sampler)
        shares = [chosen[number :: self.num_workers] for number in range(self.num_workers)]
        workers = [partial(self._work, number, share) for number, share in enumerate(shares)]
        return in_processes(workers, self.timeout)

    def _work(self, number: int, chosen: list[list[int]]) -> Iterator[Sequence[object]]:
        if self.worker_init_fn is not None:
            self.worker_init_fn(number)
        return self._load(chosen)

    def _load(self, chosen: Iterable[list[int]]) -> Iterator[Sequence[object]]:
        return (self.collate_fn([self.dataset[index] for index in indices]) for indices in chosen)

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """Return a loader of a generator's batches, prefetching up to `capacity` in a thread.

        Set the generator by `set_sample_generator`, `set_sample_list_generator` or
        `set_batch_generator`. If `iterable`, iterate over the loader and pass on its feeds: dicts,
        or lists with `return_list`. Otherwise the default main program reads from it between
        `start` and `reset`, and running it raises `fluid.core.EOFException` at the end. With
        several places `drop_last` drops the last batches if they are too few. `use_double_buffer`
        and `use_multiprocess` have no effect here.

        In eager mode the loader is iterable and yields lists of variables; only `capacity` matters.

        Raises ValueError without a capacity or without variables.
        """
        if in_dygraph_mode():
            return EagerLoader(capacity or 0)
        return GeneratorLoader(feed_list or [], capacity or 0, iterable, return_list, drop_last)

    @staticmethod
    def from_dataset(dataset: DatasetBase, places: Places, drop_last: bool = True) -> DatasetLoader:
        """Return an iterable loader of the batches of a QueueDataset or an InMemoryDataset.

        It yields a feed for each place at a time; a remainder of fewer batches than places is left
        out, and with `drop_last` batches of fewer samples too. Raises AssertionError for anything
        but a dataset and for fewer files than places.
        """
        return DatasetLoader(dataset, places, drop_last)


class DatasetLoader(DataLoaderBase):
    """The loader returned by `DataLoader.from_dataset`."""

    def __init__(self, dataset: DatasetBase, places: Places, drop_last: bool) -> None:
        _expect_instance(dataset, DatasetBase, "dataset must be type of DatasetBase")
        self._places = as_places(places)
        files, needed = len(dataset.filelist), len(self._places)
        _expect(files >= needed, f"a dataset of {files} files is not enough for {needed} places")
        if dataset.thread_num not in (0, needed):
            warnings.warn(
                f"set_thread({dataset.thread_num}) of the dataset is ignored: each of the "
                f"{needed} places has a reader",
                stacklevel=3,
            )
        dataset.set_thread(needed)
        self._dataset = dataset
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[list[dict[str, LoDTensor]]]:
        """Iterate over the feeds from the first: lists with one for each place."""
        return self._remembered(self._groups(len(self._places)))

    def _groups(self, places: int) -> Iterator[list[dict[str, LoDTensor]]]:
        feeds = map(_as_tensors, self._dataset.feeds(self._drop_last, readers=places))
        while group := list(islice(feeds, places)):
            if len(group) == places:
                yield group


def _as_tensors(feed: BatchFeed) -> dict[str, LoDTensor]:
    return {
        name: value if isinstance(value, LoDTensor) else LoDTensor(value)
        for name, value in feed.items()
    }


class PyReader(DataLoaderBase):
    """The loader of `DataLoader.from_generator` with its older method names."""

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        self._loader = DataLoader.from_generator(
            feed_list, capacity, use_double_buffer, iterable, return_list
        )

    @property
    def iterable(self) -> bool:
        """Whether it is iterated over; otherwise the program reads from it."""
        return self._loader.iterable

    @property
    def queue(self) -> Queue[list[LoDTensor]]:
        """The queue of prefetched batches of a started reader."""
        return self._loader.queue

    def __call__(self) -> PyReader:
        """Return the reader itself, for `for feed in reader()`."""
        return self

    def __iter__(self) -> Iterator[list[DeviceFeed]]:
        """Iterate over the feeds from the first: lists with one for each place."""
        return self._remembered(iter(self._loader))

    def start(self) -> None:
        """Start prefetching for the program; AssertionError if it is iterable."""
        self._loader.start()

    def reset(self) -> None:
        """Stop, so that `start` begins with the first batch; AssertionError if it is iterable."""
        self._loader.reset()

    def decorate_sample_generator(
        self,
        sample_generator: Source,
        batch_size: float,
        drop_last: bool = True,
        places: Places = None,
    ) -> None:
        """Set a generator of single samples, each with one field per variable, to be batched."""
        self._loader.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: SampleLists, places: Places = None) -> None:
        """Set a generator of lists of samples, each with one field per variable."""
        self._loader.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Source, places: Places = None) -> None:
        """Set a generator of batches: an array or a LoDTensor per variable."""
        self._loader.set_batch_generator(reader, places)


def _expect_instance(value: object, kind: type, wanted: str) -> None:
    _expect(isinstance(value, kind), wanted)


def _expect(holds: bool, wanted: str) -> None:
    if not holds:
        raise AssertionError(wanted)
