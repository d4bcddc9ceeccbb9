"""A limit of the memory that requests take together: each waits for its share, and returns it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition

from runtime.errors import TryAgain, WireError


class Budget:
    """At most `limit` bytes at once; any thread may call."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.changed = Condition()
        self._used = 0

    @contextmanager
    def reserved(self, nbytes: int, ended: Callable[[], bool], seconds: float) -> Generator[None]:
        """The block may use so many bytes.

        Raises WireError for more than the limit, TryAgain if others do not return theirs in time or
        `ended` becomes true; its call notifies `changed`.
        """
        if nbytes > self.limit:
            raise WireError(f"a request needs {nbytes} bytes, expected {self.limit} at most")
        with self.changed:
            self.changed.wait_for(lambda: self._used + nbytes <= self.limit or ended(), seconds)
            if self._used + nbytes > self.limit or ended():
                raise TryAgain(f"{nbytes} bytes for a request are not free")
            self._used += nbytes
        try:
            yield
        finally:
            with self.changed:
                self._used -= nbytes
                self.changed.notify_all()
