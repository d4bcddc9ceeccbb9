"""`SearchAgent`: asks a `ControllerServer` for tokens and reports their rewards."""

from __future__ import annotations

import socket
from collections.abc import Sequence

__all__ = ["SearchAgent"]

LONGEST_ANSWER = 1 << 16
"""Bytes of the longest answer that is read."""
PATIENCE = 60.0
"""Seconds to wait for the server."""


class SearchAgent:
    """An agent of the server at an address; `key` is the server's."""

    def __init__(self, server_ip: str, server_port: int, key: str | None = None) -> None:
        self.server_ip, self.server_port = server_ip, server_port
        self._key = key

    def update(self, tokens: Sequence[int], reward: float) -> list[int]:
        """Report the reward of tokens; returns the next ones.

        Raises OSError if the server cannot be reached, ValueError if it does not answer with
        tokens, as for a wrong key.
        """
        listed = ",".join(str(token) for token in tokens)
        return self._ask(f"{self._key}\t{listed}\t{reward}")

    def next_tokens(self) -> list[int]:
        """Return the next tokens; raises as `update`."""
        return self._ask("next_tokens")

    def _ask(self, message: str) -> list[int]:
        address = self.server_ip, self.server_port
        with socket.create_connection(address, PATIENCE) as connection:
            connection.sendall(message.encode())
            answer = b""
            while len(answer) < LONGEST_ANSWER and (part := connection.recv(LONGEST_ANSWER)):
                answer += part
        if not answer:
            raise ValueError(f"the server at {address} refused the message: is the key right?")
        return [int(token) for token in answer.decode().split(",")]
