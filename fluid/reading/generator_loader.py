"""Loaders fed by a generator: batches prefetched in a thread, for a loop or for the program itself.

An iterable loader yields feeds for `Executor.run`. From a non-iterable one the program reads
itself: every run takes the next batch, and raises EOFException after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from threading import Thread
from typing import TypeAlias, TypeVar, cast
from weakref import ref

import numpy as np

from compiler.support.tracebacks import entry_point
from fluid.core import EOFException
from fluid.data_feeder import DataFeeder
from fluid.framework import Variable, default_main_program
from fluid.reading import decorators as reader_decorators
from fluid.reading.reader_errors import checked
from fluid.recording.arguments import typed
from runtime.device import PLACES, CPUPlace, Place
from runtime.prefetching_reader import Prefetcher, Queue, prefetched
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["GeneratorLoader", "Reading", "as_places", "device_feeds", "to_tensors"]

Batch = list[LoDTensor]
Value: TypeAlias = object
"""A value of a batch: a LoDTensor, or what NumPy makes an array of."""
Sample: TypeAlias = Sequence[Value]
"""A sample with a field per variable, or a batch with a value per variable."""
Source: TypeAlias = Callable[[], Iterable[Sample]]
SampleLists: TypeAlias = Callable[[], Iterable[Iterable[Sample]]]
DeviceFeed: TypeAlias = dict[str, LoDTensor] | list[LoDTensor]
"""The feed of a place: by name, or a list in the order of the variables."""
Places: TypeAlias = Place | Sequence[Place] | None
S = TypeVar("S", bound=Sequence[object])


class PushedBatches(Queue[Batch]):
    """The queue of a reader without a source: a script pushes its batches.

    A run that needs a batch waits for one, until the queue is closed.
    """

    def __init__(self, capacity: int, names: Sequence[str]) -> None:
        super().__init__(capacity)
        self._names = names

    def push(self, batch: Sequence[LoDTensor]) -> bool:
        """Add a batch, a tensor per variable, waiting for room; returns False once it is closed.

        Raises TypeError for anything else than tensors, ValueError for another number of them.
        """
        tensors = [*batch]
        if any(not isinstance(tensor, LoDTensor) for tensor in tensors):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a batch is a LoDTensorArray, not {batch!r:.60}")
        return self.put(to_tensors(tensors, self._names))

    def close(self) -> None:
        """Accept no more; runs take the batches that are queued, then raise EOFException."""
        self.finish()

    def kill(self) -> None:
        """Drop the queued batches and accept no more."""
        super().close()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.get()


class Reading:
    """A source of batches with its prefetch thread, started and reset explicitly.

    `variables` are the variables of a batch, in order. With `drop_last`, a run on several devices
    drops the last batches if there are fewer than devices.
    """

    def __init__(
        self, variables: Sequence[Variable], capacity: int, drop_last: bool = True
    ) -> None:
        self.drop_last = drop_last
        self.variables = list(variables)
        self.names: Sequence[str] = [var.name for var in variables]
        self.capacity = capacity
        self.source: Source | None = None
        self._running: Prefetcher[Batch] | None = None
        self._pushed: PushedBatches | None = None

    def take_batches(self, source: Source) -> None:
        """Use a source of batches: each is a list of arrays or LoDTensors, one per variable.

        Raises TypeError for a source that is not a function.
        """
        self._expect_function(source)
        self.source = source

    def take_samples(self, source: SampleLists) -> None:
        """Use a source of sample lists; a sample has a field per variable."""
        self._expect_function(source)
        feeder = DataFeeder(self.variables, CPUPlace())
        self.source = lambda: ([*feeder.feed(samples).values()] for samples in source())

    def _expect_function(self, source: object) -> None:
        if not callable(source):
            raise TypeError(
                f"the data source of the reader of {self} must be a function that returns an "
                f"iterator, but received {type(source).__name__}: pass the generator function "
                "itself, or lambda: iter(batches)"
            )

    def batches(self) -> Iterator[Batch]:
        """The tensors of every batch; raises AssertionError if no source is set.

        Errors of the source are EnforceNotMet too.
        """
        if self.source is None:
            raise AssertionError(f"the data source of the reader of {self} has not been set yet")
        return checked(to_tensors(batch, self.names) for batch in self.source())

    def start(self) -> None:
        """Start prefetching; raises RuntimeError if it has started already."""
        if self._running is not None:
            raise RuntimeError(f"the reader of {self} is started already: reset it first")
        batches = self.batches()
        self._running = Prefetcher(lambda: batches, self.capacity)

    def reset(self) -> None:
        """Discard prefetched batches; `start` begins with the first batch."""
        if self._running is not None:
            self._running.close()
        if self._pushed is not None:
            self._pushed.kill()
        self._running = self._pushed = None

    @property
    def queue(self) -> Queue[Batch]:
        """The queue of prefetched batches, or before `start` one for `push`."""
        if self._running is not None:
            return self._running.queue
        if self._pushed is None:
            self._pushed = PushedBatches(self.capacity, self.names)
        return self._pushed

    @property
    def thread(self) -> Thread | None:
        """The thread that prefetches, None before `start`."""
        return None if self._running is None else self._running.thread

    def next_batch(self) -> Batch:
        """Wait for the next batch and return it.

        Without a source it is the next that is pushed, once `queue` was read. Raises EOFException
        after the last one, RuntimeError before `start`, and the errors of the source.
        """
        batch = next(self._expect_running(), None)
        if batch is None:
            raise EOFException("There is no next data: reset the reader, and start it anew")
        return batch

    def _expect_running(self) -> Iterator[Batch]:
        if self._running is None and self.source is None and self._pushed is not None:
            return self._pushed
        if self._running is None:
            raise RuntimeError(f"the reader of {self} is not started: call its start() first")
        return self._running

    def __str__(self) -> str:
        return ", ".join(self.names)


@typed
class DataLoaderBase:
    """Base class of loaders: calling or iterating over one yields its batches."""

    _begun: ref[Iterator[Sequence[object]]] | None = None
    _own: Iterator[Sequence[object]] | None = None

    def __call__(self) -> Iterable[Sequence[object]]:
        """The same as `iter(loader)`."""
        return iter(self)

    def __iter__(self) -> Iterator[Sequence[object]]:
        """Iterate from the first batch."""
        raise NotImplementedError

    @entry_point
    def __next__(self) -> Sequence[object]:
        """The next batch of the most recent iteration, or of a new one.

        Raises StopIteration after the last batch.
        """
        batches = None if self._begun is None else self._begun()
        if batches is None:
            batches = self._own = iter(self)
        return next(batches)

    def next(self) -> Sequence[object]:
        """The same as `next(loader)`."""
        return self.__next__()

    def _remembered(self, batches: Iterator[S]) -> Iterator[S]:
        """The batches, also available to `next` while the iteration is alive."""
        self._begun = ref(batches)
        return batches


class GeneratorLoader(DataLoaderBase):
    """The result of `DataLoader.from_generator`.

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
            default_main_program().read_from(self._reading, [*self._reading.names])

    @property
    def iterable(self) -> bool:
        """Whether it is used in a loop; otherwise the program reads from it."""
        return self._iterable

    @property
    def queue(self) -> Queue[Batch]:
        """The prefetched batches of a started loader."""
        return self._reading.queue

    def __call__(self) -> GeneratorLoader:
        """Return the loader itself, for `for feed in loader()`."""
        return self

    def __iter__(self) -> Iterator[list[DeviceFeed]]:
        """Iterate over feeds from the first batch: a list with one per place.

        A feed is a dict by name, or a list with `return_list`. Leaving the loop ends the prefetch
        thread.
        """
        self._expect(iterable=True, what="iterate over it")
        batches = self._reading.batches()
        ahead = prefetched(lambda: batches, self._reading.capacity)
        names = None if self._return_list else self._reading.names
        feeds = device_feeds(ahead, names, len(self._places), self._drop_last)
        return self._remembered(feeds)

    def start(self) -> None:
        """Start prefetching for the program; raises AssertionError if the loader is iterable."""
        self._expect(iterable=False, what="call start()")
        self._reading.start()

    def reset(self) -> None:
        """Stop, so that `start` begins with the first batch; raises AssertionError if iterable."""
        self._expect(iterable=False, what="call reset()")
        self._reading.reset()

    def _reset(self) -> None:
        """Stop the current iteration, or the reading by the program."""
        running = None if self._begun is None else self._begun()
        if isinstance(running, Generator):
            running.close()
        self._begun = self._own = None
        if not self._iterable:
            self._reading.reset()

    def _expect(self, iterable: bool, what: str) -> None:
        if self._iterable != iterable:
            raise AssertionError(f"DataLoader has iterable={self._iterable}: you cannot {what}")

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
        """Use a source of sample lists; a sample has a field per variable."""
        self._reading.take_samples(reader)
        return self._set_places(places)

    def set_batch_generator(self, reader: Source, places: Places = None) -> GeneratorLoader:
        """Use a source of whole batches: an array or a LoDTensor per variable."""
        self._reading.take_batches(reader)
        return self._set_places(places)

    def _set_places(self, places: Places) -> GeneratorLoader:
        if self._iterable:
            self._places = as_places(places)
        return self


def as_places(places: object) -> list[Place]:
    """A list of one or several places; raises AssertionError for none, TypeError
    for invalid ones.
    """
    if places is None:
        raise AssertionError("Places cannot be None when DataLoader is iterable")
    several = isinstance(places, list | tuple)
    return [*map(_as_place, cast(Sequence[object], places) if several else [places])]


def _as_place(place: object) -> Place:
    if not isinstance(place, PLACES):
        raise TypeError(f"places are CPUPlace() or CUDAPlace(i), not {type(place).__name__}")
    return place


def to_tensors(batch: Sequence[Value], names: Sequence[str]) -> Batch:
    """Convert a batch of arrays to LoDTensors; raises ValueError if the number of names differs."""
    if len(batch) != len(names):
        raise ValueError(f"a batch has {len(batch)} values, but one each is fed to: {names}")
    return [_tensor(value, name) for value, name in zip(batch, names, strict=True)]


def _tensor(value: Value, name: str) -> LoDTensor:
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
    batches: Iterator[Batch], names: Sequence[str] | None, places: int, drop_last: bool
) -> Iterator[list[DeviceFeed]]:
    """One batch per place, by `names` or as lists; a last group with too few batches is
    yielded as it is, or dropped with `drop_last`.
    """
    while group := list(islice(batches, places)):
        if len(group) == places or not drop_last:
            yield [dict(zip(names, sample, strict=True)) if names else sample for sample in group]
