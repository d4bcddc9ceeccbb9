"""Reader decorators: shuffle, compose, batch, map with several threads.

A reader is a function without arguments that returns a new iterable of samples at every call. Apart
from `cache`, none of these reads anything until the returned reader is called and iterated.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Thread
from typing import TypeAlias, TypeVar, cast

from compiler.support.settings.fluid import FLUID_TRACEBACK
from compiler.support.tracebacks import entry_point, first_lines, last_line
from fluid.recording.arguments import typed
from runtime.parent_process import watch
from runtime.prefetching_reader import prefetched

__all__ = [
    "ComposeNotAligned",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "in_processes",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]

S = TypeVar("S")
T = TypeVar("T")

Reader: TypeAlias = Callable[[], Iterable[T]]

_LAST_SAMPLE = 1.0
"""Seconds to wait for a thread whose samples nobody reads any more."""


class ComposeNotAligned(ValueError):
    """Composed readers returned different numbers of samples."""


@typed
def cache(reader: Reader[T]) -> Reader[T]:
    """Cache the samples of a reader in memory; they are read immediately.

    >>> numbers = cache(lambda: range(3))
    >>> list(numbers()), list(numbers())
    ([0, 1, 2], [0, 1, 2])
    """
    samples = tuple(reader())
    return lambda: iter(samples)


def map_readers(func: Callable[..., T], *readers: Reader[object]) -> Reader[T]:
    """Apply `func` to one sample of each reader; ends with the shortest.

    >>> list(map_readers(max, lambda: [1, 5], lambda: [3, 4])())
    [3, 5]
    """
    return lambda: map(func, *[reader() for reader in readers])


@typed
def shuffle(reader: Reader[T], buf_size: int) -> Reader[T]:
    """Shuffle samples within a buffer of `buf_size`.

    Uses Python's `random`, as the reference does: `random.seed` makes it repeatable.
    """

    @entry_point
    def shuffled() -> Iterator[T]:
        for samples in batch(reader, max(buf_size, 1))():
            random.shuffle(samples)
            yield from samples

    return shuffled


def chain(*readers: Reader[T]) -> Reader[T]:
    """Concatenate readers.

    >>> list(chain(lambda: "ab", lambda: "c")())
    ['a', 'b', 'c']
    """
    return lambda: itertools.chain.from_iterable([reader() for reader in readers])


def compose(*readers: Reader[object], **kwargs: bool) -> Reader[tuple[object, ...]]:
    """Zip readers: each sample is a tuple of the fields of all readers.

    With `check_alignment=False` the surplus of longer readers is dropped; otherwise, and if a
    sample is None, ComposeNotAligned is raised.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: [5, 6])())
    [(1, 2, 5), (3, 4, 6)]
    """
    aligned = kwargs.pop("check_alignment", True)
    if kwargs:
        raise TypeError(f"compose takes readers and check_alignment, not {', '.join(kwargs)}")
    together = itertools.zip_longest if aligned else zip

    @entry_point
    def composed() -> Iterator[tuple[object, ...]]:
        for samples in together(*[reader() for reader in readers]):
            if aligned and any(sample is None for sample in samples):
                left = [index for index, sample in enumerate(samples) if sample is not None]
                raise ComposeNotAligned(f"of {len(samples)} readers only {left} have samples left")
            yield tuple(itertools.chain.from_iterable(map(_as_tuple, samples)))

    return composed


def _as_tuple(sample: object) -> tuple[object, ...]:
    return cast(tuple[object, ...], sample) if isinstance(sample, tuple) else (sample,)


@typed
def buffered(reader: Reader[T], size: int) -> Reader[T]:
    """Prefetch up to `size` samples in a thread.

    Errors of the reader are raised in the consumer.
    """
    return partial(prefetched, reader, max(size, 1))


@typed
def firstn(reader: Reader[T], n: int) -> Reader[T]:
    """Take the first `n` samples.

    >>> list(firstn(itertools.count, 3)())
    [0, 1, 2]
    """
    return lambda: itertools.islice(reader(), n)


@typed
def batch(reader: Reader[T], batch_size: float, drop_last: bool = False) -> Reader[list[T]]:
    """Group samples into lists of `batch_size`; the last one may be shorter, or is dropped.

    A fractional size such as 10 / 4 is truncated. Raises ValueError for a size below 1.

    >>> list(batch(lambda: range(5), 2)()), list(batch(lambda: range(5), 2, drop_last=True)())
    ([[0, 1], [2, 3], [4]], [[0, 1], [2, 3]])
    """
    size = int(batch_size)
    if size <= 0:
        raise ValueError(f"batch_size should be a positive integer, but received {batch_size}")

    @entry_point
    def batches() -> Iterator[list[T]]:
        samples = iter(reader())
        while samples_of_batch := list(itertools.islice(samples, size)):
            if len(samples_of_batch) == size or not drop_last:
                yield samples_of_batch

    return batches


# ---- several at once


@typed
def xmap_readers(
    mapper: Callable[[S], T],
    reader: Reader[S],
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Reader[T]:
    """Map samples with `process_num` threads and at most `buffer_size` samples in flight.

    With `order` the reader's order is preserved; otherwise samples come as they are ready. Errors
    of reader and mapper are raised in the consumer.

    >>> list(xmap_readers(abs, lambda: [-1, 2, -3], 2, 4, order=True)())
    [1, 2, 3]
    """

    @entry_point
    def mapped() -> Iterator[T]:
        samples = prefetched(reader, max(buffer_size, 1))
        pool = ThreadPoolExecutor(process_num)
        try:
            ahead = itertools.islice(samples, max(buffer_size, process_num))
            waiting = deque(pool.submit(mapper, sample) for sample in ahead)
            while waiting:
                value = (waiting.popleft() if order else _first_ready(waiting)).result()
                waiting.extend(
                    pool.submit(mapper, sample) for sample in itertools.islice(samples, 1)
                )
                yield value
        finally:
            pool.shutdown(cancel_futures=True)

    return mapped


def _first_ready(waiting: deque[Future[T]]) -> Future[T]:
    """Wait until one future is done, and remove and return it."""
    done = wait(waiting, return_when=FIRST_COMPLETED).done
    first = next(future for future in waiting if future in done)
    waiting.remove(first)
    return first


def multiprocess_reader(
    readers: list[Reader[T]], use_pipe: bool = True, queue_size: int = 1000
) -> Reader[T]:
    """Interleave the samples of several readers, each read in its own process.

    `use_pipe` and `queue_size` are ignored: each process has a pipe. Raises AssertionError if
    `readers` is not a list; otherwise as `in_processes`.
    """
    _expect_list(readers)
    return partial(in_processes, readers)


def _expect_list(readers: object) -> None:
    if not isinstance(readers, list) or not readers:
        raise AssertionError(f"multiprocess_reader takes a list of readers, not {readers!r}")


@entry_point
def in_processes(readers: Iterable[Reader[T]], timeout: float = 0) -> Iterator[T]:
    """Interleave one sample of each reader round-robin, each read in its own process.

    The processes are forked, so readers may be any functions; samples must be picklable and not
    None. On systems without forks (Windows) readers run in threads of this process. Raises
    ValueError with the error and the line of a reader that failed, and, with a `timeout` in
    seconds, TimeoutError for a reader that takes longer for a sample.
    """
    start = _fork if hasattr(os, "fork") else _start_thread
    sources = [start(reader) for reader in readers]
    try:
        samples = _in_turns([connection for connection, _ in sources], timeout)
        yield from cast(Iterator[T], samples)
    finally:
        for connection, stop in sources:
            connection.close()
            stop()


def _fork(reader: Reader[object]) -> tuple[Connection, Callable[[], None]]:
    """Start a process that sends the samples of a reader; returns its connection, and a function
    that ends it.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_send_until_end_of, args=(os.getpid(), reader, theirs), daemon=True
    )
    process.start()
    theirs.close()

    def stop() -> None:
        process.terminate()
        process.join()

    return ours, stop


def _start_thread(reader: Reader[object]) -> tuple[Connection, Callable[[], None]]:
    """Start a thread instead, which ends with its sample once nobody reads the connection."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def send() -> None:
        with suppress(OSError, SystemExit), theirs:
            _send(reader, theirs)

    thread = Thread(target=send, daemon=True)
    thread.start()
    return ours, lambda: thread.join(_LAST_SAMPLE)


def _send_until_end_of(parent: int, reader: Reader[object], connection: Connection) -> None:
    """Send samples from a child, which ends with its parent even if that is killed."""
    watch(parent)
    _send(reader, connection)


def _send(reader: Reader[object], connection: Connection) -> None:
    try:
        for sample in reader():
            if sample is None:
                raise ValueError("a sample is None, which readers do not accept")
            connection.send((sample,))
        connection.send("")
    except Exception as error:
        connection.send(_description(error))
        raise SystemExit(1) from error


def _description(error: Exception) -> str:
    """An error of a reader for another process: its text and the script's line, or all frames."""
    if FLUID_TRACEBACK.text() == "full":
        return "\n" + "".join(traceback.format_exception(error))
    text = first_lines(f"{type(error).__name__}: {error}")
    return f"{text}\n  line: {last_line(error)}"


def _in_turns(connections: list[Connection], timeout: float) -> Iterator[object]:
    """Receive one sample per reader, round-robin; a string in place of a sample
    ends that reader.
    """
    left = deque(connections)
    while left:
        if timeout and not left[0].poll(timeout):
            raise TimeoutError(f"a process that reads gave no sample for {timeout} seconds")
        message = _receive(left[0])
        if isinstance(message, tuple):
            left.rotate(-1)
            yield cast(tuple[object], message)[0]
        elif message:
            raise ValueError(f"a process that reads failed: {message}")
        else:
            left.popleft()


def _receive(connection: Connection) -> object:
    try:
        return connection.recv()
    except EOFError:
        raise ValueError("a process that reads died without a word") from None
