"""Channel: messages between the caller and a worker, JSON over a socket pair, arrays in a region.

The socket preserves message boundaries (SOCK_SEQPACKET), so each is one write and one read. The two
sides alternate: a sender has written the arrays of its message and no longer reads earlier ones.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Sequence
from math import inf
from typing import Any, cast

import numpy as np

from runtime.collective.slices import Spin
from runtime.errors import CollectiveError
from runtime.parallel.region import SharedRegion, Value

MAX_INLINE_BYTES = 1 << 15
"""Maximum bytes of a message in the socket; a longer one is stored in the region."""

OUTSIDE = b"@"
"""Prefix of a message that refers to a text in the region."""

Message = dict[str, Any]


class Channel:
    """One end of the connection between the caller and a worker.

    A wait polls for `spin` seconds before it sleeps, as long as that pays.
    """

    def __init__(self, connection: socket.socket, region: SharedRegion, spin: float = 0.0) -> None:
        self.connection = connection
        self.region = region
        self._spin = Spin(spin)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Message, values: Sequence[Value] = ()) -> None:
        """Send a message with arrays. Raises OSError if the other side has ended."""
        message["values"] = self.region.write(values) if values else []
        data = json.dumps(message).encode()
        if len(data) > MAX_INLINE_BYTES:
            text = np.frombuffer(data, "uint8")
            message["values"] = self.region.write([*values, text])
            data = OUTSIDE + json.dumps(message["values"][-1]).encode()
        self.connection.send(data)

    def waits(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether there is a message, or the end of the stream."""
        return self._spin.poll(self._has_message, seconds) or self._has_message(seconds)

    def receive(self) -> Message | None:
        """Wait for the next message; None if the other side has ended."""
        self._spin.poll(self._has_message, inf)
        try:
            data = self.connection.recv(2 * MAX_INLINE_BYTES)
        except ConnectionResetError:
            return None
        if not data:
            return None
        if data.startswith(OUTSIDE):
            place = json.loads(data[len(OUTSIDE) :])
            (text,) = self.region.read([place], copies=True)
            data = cast("np.ndarray[Any, Any]", text).tobytes()
        loaded = json.loads(data)
        if not isinstance(loaded, dict):
            raise CollectiveError(f"this is not a message: {data[:80]!r}")
        return cast(Message, loaded)

    def _has_message(self, seconds: float = 0.0) -> bool:
        return bool(self._poll.poll(seconds * 1000))

    def values(self, message: Message, *, copies: bool) -> list[Value]:
        """Return the arrays of a message, copied or as views into the region."""
        return self.region.read(message.get("values"), copies=copies)


def text_value(text: str) -> Value:
    """A text as an array of its bytes."""
    return np.frombuffer(text.encode(), "uint8")


def value_text(value: Value) -> str:
    """The text of an array of bytes."""
    return cast("np.ndarray[Any, Any]", value).tobytes().decode()
