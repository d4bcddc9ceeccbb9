"""Readers made of readers: shuffled, joined, cut into batches, mapped by several threads.

A reader is a function without arguments whose every call gives the samples anew. None of these
reads anything before the reader that it gives is called and iterated, but for `cache`.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from compiler.tracebacks import entry_point
from fluid.recording.arguments import typed
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

Reader = Callable[[], Iterable[Any]]


class ComposeNotAligned(ValueError):
    """Readers that are composed gave different numbers of samples."""


@typed
def cache(reader: Reader) -> Reader:
    """A reader of the same samples that keeps them in memory; they are read at once.

    >>> numbers = cache(lambda: range(3))
    >>> list(numbers()), list(numbers())
    ([0, 1, 2], [0, 1, 2])
    """
    samples = tuple(reader())
    return lambda: iter(samples)


def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """A reader of what `func` makes of one sample of each reader; it ends with the shortest.

    >>> list(map_readers(max, lambda: [1, 5], lambda: [3, 4])())
    [3, 5]
    """
    return lambda: map(func, *[reader() for reader in readers])


@typed
def shuffle(reader: Reader, buf_size: int) -> Reader:
    """A reader that fills a buffer of `buf_size` samples and gives them in a random order.

    It draws from Python's `random`, as the reference does: `random.seed` makes it repeatable.
    """

    @entry_point
    def shuffled() -> Iterator[Any]:
        for samples in batch(reader, max(buf_size, 1))():
            random.shuffle(samples)
            yield from samples

    return shuffled


def chain(*readers: Reader) -> Reader:
    """A reader of all samples of the first reader, then of the second, and so on.

    >>> list(chain(lambda: "ab", lambda: "c")())
    ['a', 'b', 'c']
    """
    return lambda: itertools.chain.from_iterable([reader() for reader in readers])


def compose(*readers: Reader, **kwargs: Any) -> Reader:
    """A reader whose samples are tuples of the fields that each reader gives.

    With `check_alignment=False` what the longer ones have left is dropped; otherwise, and where a
    sample is None, ComposeNotAligned is raised.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: [5, 6])())
    [(1, 2, 5), (3, 4, 6)]
    """
    aligned = kwargs.pop("check_alignment", True)
    if kwargs:
        raise TypeError(f"compose takes readers and check_alignment, not {', '.join(kwargs)}")
    together = itertools.zip_longest if aligned else zip

    @entry_point
    def composed() -> Iterator[tuple[Any, ...]]:
        for samples in together(*[reader() for reader in readers]):
            if aligned and any(sample is None for sample in samples):
                left = [index for index, sample in enumerate(samples) if sample is not None]
                raise ComposeNotAligned(f"of {len(samples)} readers only {left} have samples left")
            yield sum(map(_as_tuple, samples), ())

    return composed


def _as_tuple(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)


@typed
def buffered(reader: Reader, size: int) -> Reader:
    """A reader that reads up to `size` samples ahead, in a thread.

    Errors of the reader are raised where its samples are taken.
    """
    return partial(prefetched, reader, max(size, 1))


@typed
def firstn(reader: Reader, n: int) -> Reader:
    """A reader of the first `n` samples.

    >>> list(firstn(itertools.count, 3)())
    [0, 1, 2]
    """
    return lambda: itertools.islice(reader(), n)


@typed
def batch(reader: Reader, batch_size: float, drop_last: bool = False) -> Reader:
    """A reader of lists of `batch_size` samples; the last one may be shorter, or is dropped.

    The fraction of a size such as 10 / 4 is dropped. Raises ValueError for a size below 1.

    >>> list(batch(lambda: range(5), 2)()), list(batch(lambda: range(5), 2, drop_last=True)())
    ([[0, 1], [2, 3], [4]], [[0, 1], [2, 3]])
    """
    size = int(batch_size)
    if size <= 0:
        raise ValueError(f"batch_size should be a positive integer, but received {batch_size}")

    @entry_point
    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while found := list(itertools.islice(samples, size)):
            if len(found) == size or not drop_last:
                yield found

    return batches


# ---- several at once


@typed
def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Reader,
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Reader:
    """A reader of mapped samples, made by `process_num` threads, `buffer_size` samples at a time.

    With `order` they keep the order of the reader; otherwise they come as they are ready. Errors
    of reader and mapper are raised where the samples are taken.

    >>> list(xmap_readers(abs, lambda: [-1, 2, -3], 2, 4, order=True)())
    [1, 2, 3]
    """

    @entry_point
    def mapped() -> Iterator[Any]:
        samples = prefetched(reader, max(buffer_size, 1))
        pool = ThreadPoolExecutor(process_num)
        try:
            ahead = itertools.islice(samples, max(buffer_size, process_num))
            waiting = deque(pool.submit(mapper, sample) for sample in ahead)
            while waiting:
                value = (waiting.popleft() if order else _first_ready(waiting)).result()
                waiting.extend(pool.submit(mapper, each) for each in itertools.islice(samples, 1))
                yield value
        finally:
            pool.shutdown(cancel_futures=True)

    return mapped


def _first_ready(waiting: deque[Future[Any]]) -> Future[Any]:
    """Take out the first one that is done, once one is."""
    done = wait(waiting, return_when=FIRST_COMPLETED).done
    first = next(future for future in waiting if future in done)
    waiting.remove(first)
    return first


def multiprocess_reader(
    readers: list[Reader], use_pipe: bool = True, queue_size: int = 1000
) -> Reader:
    """A reader of the samples of several, each read in a process of its own, in turns.

    They come through a pipe a process, whatever `use_pipe` and `queue_size` say. Raises
    AssertionError for no list of readers; otherwise as `in_processes`, which see.
    """
    if not isinstance(readers, list) or not readers:
        raise AssertionError(f"multiprocess_reader takes a list of readers, not {readers!r}")
    return partial(in_processes, readers)


@entry_point
def in_processes(readers: Iterable[Reader], timeout: float = 0) -> Iterator[Any]:
    """One sample of each reader in turns, each read in a process of its own.

    The processes are forked, so that readers may be any functions; samples can be pickled and are
    not None. Raises ValueError with the traceback of a reader that failed, and, where a `timeout`
    in seconds is given, TimeoutError for a reader that takes longer over a sample.
    """
    sources = [_fork(reader) for reader in readers]
    try:
        yield from _in_turns([connection for connection, _ in sources], timeout)
    finally:
        for connection, process in sources:
            connection.close()
            process.terminate()
            process.join()


def _fork(reader: Reader) -> tuple[Connection, BaseProcess]:
    """A process that sends the samples of a reader, and where they arrive."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(reader, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _send(reader: Reader, connection: Connection) -> None:
    try:
        for sample in reader():
            if sample is None:
                raise ValueError("a sample is None, which says nothing to those who read it")
            connection.send((sample,))
        connection.send("")
    except Exception as error:
        connection.send(traceback.format_exc())
        raise SystemExit(1) from error


def _in_turns(connections: list[Connection], timeout: float) -> Iterator[Any]:
    """One sample of each reader, again and again; a text in place of a sample is its last word."""
    left = deque(connections)
    while left:
        if timeout and not left[0].poll(timeout):
            raise TimeoutError(f"a process that reads gave no sample for {timeout} seconds")
        message = _receive(left[0])
        if isinstance(message, tuple):
            left.rotate(-1)
            yield message[0]
        elif message:
            raise ValueError(f"a process that reads failed:\n{message}")
        else:
            left.popleft()


def _receive(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise ValueError("a process that reads died without a word") from None
