"""LocalStore: the store of a rendezvous whose ranks are processes of one caller.

It has those methods of torch's TCPStore that ranks use, so that CPU devices of one script need
neither torch nor a port. The caller has the values; a thread for each other rank answers it, a line
of JSON for each request.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import IO, Any

from compiler.support.dataclass import dataclass
from runtime.collective.rendezvous import StoreConnection


class LocalStore:
    """Texts by key, as the process that has them uses them. `get` raises KeyError for an unknown
    key: nothing waits for one.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lock = Lock()
        self._answers: dict[str, Callable[..., Any]] = {
            "set": self.set,
            "add": self.add,
            "check": self.check,
            "delete_key": self.delete_key,
            "multi_get": self._texts_of,
        }

    def set(self, key: str, text: str) -> None:
        """Store a text."""
        self._texts[key] = text

    def get(self, key: str) -> bytes:
        """The text of a key."""
        return self._texts[key].encode()

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The texts of keys."""
        return [text.encode() for text in self._texts_of(keys)]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have a text."""
        return all(key in self._texts for key in keys)

    def add(self, key: str, number: int) -> int:
        """Add to the number of a key, 0 without one; return the sum."""
        with self._lock:
            total = int(self._texts.get(key, "0")) + number
            self._texts[key] = str(total)
        return total

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it had a text."""
        return self._texts.pop(key, None) is not None

    def _texts_of(self, keys: Sequence[str]) -> list[str]:
        return [self._texts[key] for key in keys]

    def open(self) -> socket.socket:
        """Return the socket of a new `StoreClient`, which is answered until it is closed."""
        own, theirs = socket.socketpair()
        Thread(target=self._serve, args=(own,), daemon=True, name="store").start()
        return theirs

    def _serve(self, connection: socket.socket) -> None:
        with (
            suppress(OSError, ValueError, LookupError, TypeError),  # the client sees the end
            connection,
            connection.makefile("rw", encoding="utf-8") as file,
        ):
            for line in file:
                method, *arguments = json.loads(line)
                _send(file, self._answers[method](*arguments))


class StoreClient:
    """The methods of a `LocalStore` in another process. They raise RuntimeError if the store has
    ended, or does not know a key.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rw", encoding="utf-8")
        self._lock = Lock()

    def set(self, key: str, text: str) -> None:
        """Store a text."""
        self._ask("set", key, text)

    def get(self, key: str) -> bytes:
        """The text of a key."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The texts of keys."""
        return [text.encode() for text in self._ask("multi_get", keys)]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have a text."""
        return self._ask("check", keys)

    def add(self, key: str, number: int) -> int:
        """Add to the number of a key, 0 without one; return the sum."""
        return self._ask("add", key, number)

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it had a text."""
        return self._ask("delete_key", key)

    def _ask(self, *request: object) -> Any:
        with self._lock:
            try:
                _send(self._file, request)
                line = self._file.readline()
            except OSError as error:
                raise RuntimeError(f"the store of the ranks has ended: {error}") from error
        if not line:
            raise RuntimeError("the store of the ranks has ended")
        return json.loads(line)


@dataclass(frozen=True, eq=False)
class LocalConnection(StoreConnection):
    """A connection to a `LocalStore`, which is the same for all threads of a process: no request
    waits.
    """

    def connect(self, limit: float) -> Any:
        """Return the store or client itself."""
        return self.engine


def local_connection(engine: LocalStore | StoreClient) -> LocalConnection:
    """The connection of a rendezvous to a store of this machine's processes."""
    return LocalConnection(("localhost", 0), engine)


def _send(file: IO[str], value: object) -> None:
    file.write(json.dumps(value) + "\n")
    file.flush()
