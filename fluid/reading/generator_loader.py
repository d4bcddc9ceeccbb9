"""Loaders fed by a generator: batches made ahead in a thread, for a loop or for the program itself.

An iterable loader gives feeds to pass to `Executor.run`. From one that is not, a program reads by
itself: every run takes the next batch, and raises EOFException after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from weakref import ref

import numpy as np

from compiler.tracebacks import entry_point
from fluid.core import EOFException
from fluid.data_feeder import DataFeeder
from fluid.framework import Variable, default_main_program
from fluid.reading import decorators as reader_decorators
from fluid.recording.arguments import typed
from runtime.device import PLACES, CPUPlace, Place
from runtime.prefetching_reader import Prefetcher, Queue, prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["GeneratorLoader", "Reading", "as_places", "device_feeds", "to_tensors"]

Batch = list[LoDTensor]
Source = Callable[[], Iterable[Any]]


class Reading:
    """A source of batches and the thread that makes them ahead, begun and ended by hand.

    `variables` are what the values of a batch are for, in order. With `drop_last`, a run on
    several devices takes no batches where there are fewer than devices left.
    """

    def __init__(
        self, variables: Sequence[Variable], capacity: int, drop_last: bool = True
    ) -> None:
        self.drop_last = drop_last
        self.variables = list(variables)
        self.names = [var.name for var in variables]
        self.capacity = capacity
        self.source: Source | None = None
        self._running: Prefetcher[Batch] | None = None
        self._idle: Queue[Batch] = Queue(capacity)

    def take_batches(self, source: Source) -> None:
        """Read batches: each is a list of arrays or LoDTensors, one a variable."""
        self.source = source

    def take_samples(self, source: Source) -> None:
        """Read lists of samples, each with a field for each variable."""
        feeder = DataFeeder(self.variables, CPUPlace())
        self.source = lambda: ([*feeder.feed(samples).values()] for samples in source())

    def batches(self) -> Iterator[Batch]:
        """The tensors of every batch; AssertionError where nothing says where they come from."""
        if self.source is None:
            raise AssertionError(f"the data source of the reader of {self} has not been set yet")
        return (to_tensors(batch, self.names) for batch in self.source())

    def start(self) -> None:
        """Begin to make batches ahead; RuntimeError where it has begun already."""
        if self._running is not None:
            raise RuntimeError(f"the reader of {self} is started already: reset it first")
        batches = self.batches()
        self._running = Prefetcher(lambda: batches, self.capacity)

    def reset(self) -> None:
        """Forget what was made ahead; `start` begins anew."""
        if self._running is not None:
            self._running.close()
        self._running = None

    @property
    def queue(self) -> Queue[Batch]:
        """The batches that wait; none before it is started."""
        return self._idle if self._running is None else self._running.queue

    def next_batch(self) -> Batch:
        """The next batch, waiting for it.

        Raises EOFException after the last one, RuntimeError while it is not started, and what the
        source raises.
        """
        batch = next(self._expect_running(), None)
        if batch is None:
            raise EOFException("There is no next data: reset the reader, and start it anew")
        return batch

    def _expect_running(self) -> Prefetcher[Batch]:
        if self._running is None:
            raise RuntimeError(f"the reader of {self} is not started: call its start() first")
        return self._running

    def __str__(self) -> str:
        return ", ".join(self.names)


@typed
class DataLoaderBase:
    """What loaders have in common: they are called, or looped over, for their batches."""

    _begun: ref[Iterator[Any]] | None = None
    _own: Iterator[Any] | None = None

    def __call__(self) -> Any:
        """The same as `iter(loader)`."""
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        """The batches from the first one on."""
        raise NotImplementedError

    @entry_point
    def __next__(self) -> Any:
        """The next batch of the loop that was begun last, or of a new one.

        Raises StopIteration after the last batch.
        """
        batches = None if self._begun is None else self._begun()
        if batches is None:
            batches = self._own = iter(self)
        return next(batches)

    def next(self) -> Any:
        """The same as `next(loader)`."""
        return self.__next__()

    def _remembered(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches themselves, which `next` takes as long as anyone loops over them."""
        self._begun = ref(batches)
        return batches


class GeneratorLoader(DataLoaderBase):
    """What `DataLoader.from_generator` gives, which see.

    Raises ValueError without a capacity or without variables.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable],
        capacity: int,
        iterable: bool,
        return_list: bool,
        drop_last: bool,
    ) -> None:
        if not capacity:
            raise ValueError("Please give value to capacity: how many batches are made ahead")
        if not feed_list:
            raise ValueError("feed_list must be given: the variables that the batches are for")
        self._reading = Reading(feed_list, capacity, drop_last)
        self._iterable = iterable
        self._return_list = return_list
        self._drop_last = drop_last
        self._places: list[Place] = []
        if not iterable:
            default_main_program()._read_from(self._reading, self._reading.names)

    @property
    def iterable(self) -> bool:
        """Whether it is for a loop; otherwise the program reads from it."""
        return self._iterable

    @property
    def queue(self) -> Queue[Batch]:
        """The batches that wait in a started loader."""
        return self._reading.queue

    def __call__(self) -> GeneratorLoader:
        """The loader itself, so that `for feed in loader()` reads well."""
        return self

    def __iter__(self) -> Iterator[list[Any]]:
        """The feeds from the first one on: a list with one for each place.

        A feed is a dict by name, or a list with `return_list`. Leaving the loop ends the thread
        that makes them.
        """
        self._expect(iterable=True, what="iterate over it")
        batches = self._reading.batches()
        ahead = prefetched(lambda: batches, self._reading.capacity)
        names = None if self._return_list else self._reading.names
        feeds = device_feeds(ahead, names, len(self._places), self._drop_last)
        return self._remembered(feeds)

    def start(self) -> None:
        """Begin to make batches for the program; AssertionError where the loader is iterable."""
        self._expect(iterable=False, what="call start()")
        self._reading.start()

    def reset(self) -> None:
        """Stop, so that `start` begins with the first batch; AssertionError as `start`."""
        self._expect(iterable=False, what="call reset()")
        self._reading.reset()

    def _expect(self, iterable: bool, what: str) -> None:
        if self._iterable != iterable:
            raise AssertionError(f"DataLoader has iterable={self._iterable}: you cannot {what}")

    def set_sample_generator(
        self, reader: Source, batch_size: float, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Read single samples, each with a field for each variable, and make batches of them."""
        if batch_size <= 0:
            raise AssertionError(f"batch_size must be larger than 0, but received {batch_size}")
        batches = reader_decorators.batch(reader, batch_size, drop_last)
        return self.set_sample_list_generator(batches, places)

    def set_sample_list_generator(self, reader: Source, places: Any = None) -> GeneratorLoader:
        """Read lists of samples, each with a field for each variable."""
        self._reading.take_samples(reader)
        return self._set_places(places)

    def set_batch_generator(self, reader: Source, places: Any = None) -> GeneratorLoader:
        """Read whole batches: an array or a LoDTensor for each variable."""
        self._reading.take_batches(reader)
        return self._set_places(places)

    def _set_places(self, places: Any) -> GeneratorLoader:
        if self._iterable:
            self._places = as_places(places)
        return self


def as_places(places: Any) -> list[Place]:
    """The places given, one or several; AssertionError for none, TypeError for what is no place."""
    if places is None:
        raise AssertionError("Places cannot be None when DataLoader is iterable")
    found = [*places] if isinstance(places, list | tuple) else [places]
    for place in found:
        if not isinstance(place, PLACES):
            raise TypeError(f"places are CPUPlace() or CUDAPlace(i), not {type(place).__name__}")
    return found


def to_tensors(batch: Sequence[Any], names: Sequence[str]) -> Batch:
    """The LoDTensors of a batch of arrays; ValueError where there are not as many as names."""
    if len(batch) != len(names):
        raise ValueError(f"a batch has {len(batch)} values, but one each is fed to: {names}")
    return [_tensor(value, name) for value, name in zip(batch, names, strict=True)]


def _tensor(value: Any, name: str) -> LoDTensor:
    if isinstance(value, LoDTensor):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"the value for {name!r} has rows of different lengths: make it by create_lod_tensor"
        ) from error
    if array.dtype == object:
        raise TypeError(f"the value for {name!r} is no array of numbers: {value!r:.60}")
    tensor = LoDTensor()
    tensor.set(array, CPUPlace())
    return tensor


@entry_point
def device_feeds(
    batches: Iterator[Batch], names: list[str] | None, places: int, drop_last: bool
) -> Iterator[list[Any]]:
    """One batch for each place, by `names` or as lists; the last ones may be too few.

    Then they come as they are, or with `drop_last` not at all.
    """
    while group := list(islice(batches, places)):
        if len(group) == places or not drop_last:
            yield [dict(zip(names, each, strict=True)) if names else each for each in group]
