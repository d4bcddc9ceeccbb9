"""Readers: what makes the next batches while a step runs, in a thread and a bounded queue.

A `Queue` holds a few items between a thread that puts and one that gets; closing it wakes both. A
`Prefetcher` makes the items of an iterable in such a thread. Its errors reach whoever asks for the
next item, with their own traceback, and no thread stays behind when nobody asks any more, be it
after a `break`, an error or Ctrl-C.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Condition, Thread
from types import TracebackType
from typing import Generic, TypeVar

from compiler.tracebacks import entry_point
from runtime.forks import renew_in_children

T = TypeVar("T")

_FORKED = "the thread that reads batches is in the parent process: start the reader after the fork"


class EOFException(Exception):
    """A reader that the program reads from has no next batch: `reset` it, and `start` it anew."""


class Queue(Generic[T]):
    """At most `capacity` items on their way between threads, first in first out.

    It is also the `with` block in which the putting side works: at the end of the block nothing
    more will come, and an error that left it is kept for the getting side.

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
        """In a child of a fork nobody puts: behind what waits, `get` raises RuntimeError."""
        self._changed = Condition()
        if not (self._ended or self._closed):
            self._ended, self._error = True, RuntimeError(_FORKED)

    def size(self) -> int:
        """How many items wait."""
        return len(self._items)

    def capacity(self) -> int:
        """How many items may wait."""
        return self._capacity

    def put(self, item: T) -> bool:
        """Add an item, waiting for room; False, and nothing is added, once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def get(self) -> T:
        """The next item, waiting for it.

        Raises StopIteration where nothing more will come, and the putting side's error where that
        is the reason.
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
        """Drop what waits and take nothing more."""
        with self._changed:
            self._closed = True
            self._items.clear()
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
    """The items of an iterable, made up to `capacity` ahead in a thread of their own.

    `source` is called in that thread. An iterator itself; at the end and after an error the
    thread is gone.

    >>> with Prefetcher(lambda: "abc", 2) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """

    def __init__(self, source: Callable[[], Iterable[T]], capacity: int) -> None:
        self.queue: Queue[T] = Queue(capacity)
        # The thread knows the queue alone, and so does not keep this object alive.
        self._thread = Thread(target=_fill, args=(self.queue, source), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self.queue.get()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread, which ends with the item it is making, and wait for it."""
        self.queue.close()
        self._thread.join()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # It does not wait as `close` does: whoever drops the last reference may hold locks.
        self.queue.close()


@entry_point
def prefetched(source: Callable[[], Iterable[T]], capacity: int) -> Iterator[T]:
    """The items of an iterable, made ahead as `Prefetcher` does; leaving the loop ends the thread.

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
