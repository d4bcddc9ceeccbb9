"""Prefetching readers: produce the next batches in a thread with a bounded queue while a step runs.

A `Queue` holds a few items between a producer and a consumer thread; closing it wakes both. A
`Prefetcher` produces the items of an iterable in such a thread. Its errors are raised in the
consumer, with their own traceback, and the thread ends when the consumer stops, be it after a
`break`, an error or Ctrl-C.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Condition, Thread
from types import TracebackType
from typing import Generic, TypeVar

from compiler.support.tracebacks import entry_point
from runtime.forks import renew_in_children

T = TypeVar("T")

_FORKED = "the thread that reads batches is in the parent process: start the reader after the fork"


class EOFException(Exception):
    """A reader of the program has no next batch: `reset` it and `start` it again."""


class Queue(Generic[T]):
    """A bounded FIFO queue of at most `capacity` items between threads.

    It is also the context manager of the producer: at the end of the block the queue is finished,
    and an error that left the block is kept for the consumer.

    >>> queue = Queue(2)
    >>> queue.put("a"), queue.put("b"), queue.size(), queue.get()
    (True, True, 2, 'a')
    >>> queue.close(), queue.put("c")
    (None, False)
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._closed = False
        self._ended = False
        self._error: BaseException | None = None
        self._changed = Condition()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """The child of a fork has no producer: after the queued items, `get` raises
        RuntimeError.
        """
        self._changed = Condition()
        if not (self._ended or self._closed):
            self._ended, self._error = True, RuntimeError(_FORKED)

    def size(self) -> int:
        """The number of queued items."""
        return len(self._items)

    def capacity(self) -> int:
        """The maximum number of queued items."""
        return self._capacity

    def put(self, item: T) -> bool:
        """Add an item, waiting for room; returns False, without adding it, once the queue is
        closed or finished.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_done or len(self._items) < self._capacity)
            if not self._is_done:
                self._items.append(item)
                self._changed.notify_all()
            return not self._is_done

    @property
    def _is_done(self) -> bool:
        return self._closed or self._ended

    def get(self) -> T:
        """Wait for the next item and return it.

        Raises StopIteration at the end, or the producer's error if it failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed)
            if self._items:
                self._changed.notify_all()
                return self._items.popleft()
        if self._error is not None and not self._closed:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Drop the queued items and accept no more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def finish(self) -> None:
        """Accept no more; the queued items can still be taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()
        return True


class Prefetcher(Generic[T]):
    """An iterator over the items of an iterable, produced up to `capacity` ahead in a separate
    thread.

    `source` is called in that thread, which ends with the items and after an error.

    >>> with Prefetcher(lambda: "abc", 2) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """

    def __init__(self, source: Callable[[], Iterable[T]], capacity: int) -> None:
        self.queue: Queue[T] = Queue(capacity)
        # The thread refers only to the queue, so it does not keep this object alive.
        self.thread = Thread(target=_fill, args=(self.queue, source), daemon=True)
        self.thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self.queue.get()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread, which ends after its current item, and wait for it."""
        self.queue.close()
        self.thread.join()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Unlike `close` it does not wait: the caller that drops the last reference may hold locks.
        self.queue.close()


@entry_point
def prefetched(source: Callable[[], Iterable[T]], capacity: int) -> Iterator[T]:
    """Iterate over an iterable, prefetched as `Prefetcher` does; leaving the loop ends the thread.

    >>> list(prefetched(lambda: range(3), 1))
    [0, 1, 2]
    """
    with Prefetcher(source, capacity) as items:
        yield from items


def _fill(queue: Queue[T], source: Callable[[], Iterable[T]]) -> None:
    with queue:
        for item in source():
            if not queue.put(item):
                return
