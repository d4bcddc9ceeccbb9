"""An HTTP key-value server, through which the processes of a job find each other.

`GET`, `PUT` and `DELETE` of `/scope/key`, as `incubate.fleet.utils.http_server` of release 1.8. It
listens on one address only, by default the loopback address; keys, values, their number, the
connections at once and the time of a request are limited. Nothing received is executed or written
to a file.
"""

from __future__ import annotations

import io
import re
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

__all__ = ["KVHTTPServer", "KVHandler", "KVServer"]

VALUE_BYTES = 1 << 20
"""Maximum bytes of a value."""
DISCARDED_BYTES = 4 * VALUE_BYTES
"""Maximum bytes read of a value that is too large, so that its sender receives the response."""
TOTAL_BYTES = 1 << 26
"""Maximum bytes of all values."""
KEYS = 1 << 16
"""Maximum number of keys."""
REQUEST_SECONDS = 10
"""Maximum time from accepting a connection to the end of its response, however it is spent."""
CONNECTIONS = 64
"""Maximum number of connections at once, each of which has a thread; others are answered 503."""
POLL_SECONDS = 0.05
"""Maximum time until `stop` is noticed."""
BUSY = b"%d connections are open, as many as this server accepts: try again later\n"
PATH = re.compile(r"/([\w.:@-]{1,256})/([\w.:@-]{1,256})")


class KVHandler(BaseHTTPRequestHandler):
    """Answers requests: 200, 400 for another path, 404 for an unknown key, 411 and 413 for
    sizes. A connection is closed when its time is over.
    """

    server: KVHTTPServer  # pyright: ignore[reportIncompatibleVariableOverride] - always one

    def setup(self) -> None:
        """Read from the connection until its time is over."""
        super().setup()
        self._deadline = Deadline(self.connection, REQUEST_SECONDS)
        self.rfile = io.BufferedReader(Received(self._deadline))

    def do_GET(self) -> None:
        """Respond with the value of a key."""
        place = self._place()
        if place is None:
            return
        value = self.server.get(*place)
        if value is None:
            self.send_status_code(404)
        else:
            self._answer(200, value)

    def do_PUT(self) -> None:
        """Set the value of a key to the body."""
        place = self._place()
        if place is None:
            return
        text = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,10}", text):
            self.send_status_code(411)
        elif int(text) > VALUE_BYTES:
            self._discard(min(int(text), DISCARDED_BYTES))
            self.send_status_code(413)
        else:
            value = self.rfile.read(int(text))
            whole = len(value) == int(text)
            self.send_status_code(200 if whole and self.server.put(*place, value) else 413)

    def do_DELETE(self) -> None:
        """Record that a process no longer needs a key; the value is kept for others."""
        place = self._place()
        if place is not None:
            self.send_status_code(200 if self.server.note_deleted(*place) else 413)

    def send_status_code(self, code: int) -> None:
        """Respond without a body."""
        self._answer(code, b"")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _place(self) -> tuple[str, str] | None:
        """The scope and the key of the path; responds 400 if the path has none."""
        match = PATH.fullmatch(self.path)
        if match is None:
            self.send_status_code(400)
            return None
        return match[1], match[2]

    def _discard(self, count: int) -> None:
        """Read that many bytes of the body: a client reads no response while it still sends."""
        while count > 0 and (part := self.rfile.read(min(count, 1 << 16))):
            count -= len(part)

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self._deadline.apply()
        self.end_headers()
        self._deadline.apply()
        self.wfile.write(body)


class Deadline:
    """The end of the time that all operations of a connection have together."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection = connection
        self._end = monotonic() + seconds

    def apply(self) -> None:
        """Let the next operation end when the time is over. Raises TimeoutError if it is."""
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the request takes too long")
        self.connection.settimeout(left)


class Received(io.RawIOBase):
    """The bytes that a connection receives before its deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for bytes. Raises TimeoutError at the deadline."""
        self._deadline.apply()
        return self._deadline.connection.recv_into(buffer)


class KVHTTPServer(ThreadingHTTPServer):
    """Stores keys and values; each connection has a thread, up to the maximum of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, KVHandler)
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], bytes] = {}
        self._deleted: dict[str, set[str]] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or refuse it."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            _refuse(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors, unless a client closed its connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def get(self, scope: str, key: str) -> bytes | None:
        """The value of a key, or None."""
        with self._lock:
            return self._values.get((scope, key))

    def put(self, scope: str, key: str, value: bytes) -> bool:
        """Set the value of a key; False if it exceeds the limits."""
        with self._lock:
            others = {place: len(v) for place, v in self._values.items() if place != (scope, key)}
            if len(others) >= KEYS or sum(others.values()) + len(value) > TOTAL_BYTES:
                return False
            self._values[scope, key] = value
            return True

    def note_deleted(self, scope: str, key: str) -> bool:
        """Record that a process no longer needs a key; False if there are too many."""
        with self._lock:
            if sum(map(len, self._deleted.values())) >= KEYS:
                return False
            self._deleted.setdefault(scope, set()).add(key)
            return True

    def get_deleted_size(self, key: str) -> int:
        """The number of keys of a scope that are no longer needed."""
        with self._lock:
            return len(self._deleted.get(key, ()))


def _refuse(connection: socket.socket) -> None:
    """Answer 503, without waiting for what the client sends or receives."""
    connection.setblocking(False)
    body = BUSY % CONNECTIONS
    head = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    with suppress(OSError):
        connection.send(head + body)
        connection.recv(1 << 16)  # with bytes unread, the system would drop the answer


class KVServer:
    """A `KVHTTPServer` in a thread. `size` has the number of keys of each scope to be deleted at
    the end.

    `port` may be 0 for a free one. Raises OSError if the address is in use.
    """

    def __init__(
        self, port: int, size: Mapping[str, int] | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.http_server = KVHTTPServer((host, port))
        self.listen_thread: threading.Thread | None = None
        self.size = dict(size or {})

    @property
    def endpoint(self) -> str:
        """The address it listens on, host:port."""
        host, port = self.http_server.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Serve requests, in a thread, until `stop`."""
        serve = partial(self.http_server.serve_forever, POLL_SECONDS)
        self.listen_thread = threading.Thread(target=serve, daemon=True)
        self.listen_thread.start()

    def stop(self) -> None:
        """End the thread and close the port."""
        if self.listen_thread is not None:
            self.http_server.shutdown()
            self.listen_thread.join()
            self.listen_thread = None
        self.http_server.server_close()

    def should_stop(self) -> bool:
        """Whether all keys counted in `size` are no longer needed."""
        counts = self.http_server.get_deleted_size
        return all(counts(scope) >= number for scope, number in self.size.items())

    shoud_stop = should_stop
    """The name in release 1.8."""
