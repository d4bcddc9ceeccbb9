"""`ControllerServer`: a controller that agents on other computers ask for tokens."""

from __future__ import annotations

import logging
import socket
from threading import Thread

from fluid.contrib.slim.searcher.controller import EvolutionaryController

__all__ = ["ControllerServer"]

_logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 1 << 16
"""Bytes of the longest message that is read."""
PATIENCE = 30.0
"""Seconds in which an agent has to send its message."""
_PAUSE = 0.2


class ControllerServer:
    """Answers agents with the tokens of a controller, until it has learned `search_steps` rewards.

    Messages are text: "next_tokens", or the key, tokens and their reward between tabs; others are
    ignored. The default address is any network interface and a free port. Anyone who can connect
    can ask for tokens, and with the key report rewards: use it in networks that you trust.
    """

    def __init__(
        self,
        controller: EvolutionaryController,
        address: tuple[str, int] = ("", 0),
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str | None = None,
    ) -> None:
        self._controller = controller
        self._address = address
        self._max_client_num = max_client_num
        self._search_steps = search_steps
        self._key = key
        self._ip, self._port = address
        self._closed = False
        self._rewards = 0
        self._socket: socket.socket | None = None

    def start(self) -> str:
        """Listen in a thread; returns its description. Raises OSError for an address in use."""
        self._socket = socket.create_server(self._address, backlog=self._max_client_num)
        self._socket.settimeout(_PAUSE)
        self._ip, self._port = self._socket.getsockname()[:2]
        thread = Thread(target=self.run, daemon=True)
        thread.start()
        return str(thread)

    def close(self) -> None:
        """Stop listening, after the agent that is being answered."""
        self._closed = True

    def port(self) -> int:
        """Return the port it listens on."""
        return self._port

    def ip(self) -> str:
        """Return the address it listens on."""
        return self._ip

    def _is_done(self) -> bool:
        steps = self._search_steps
        return self._closed or (steps is not None and self._rewards >= steps)

    def run(self) -> None:
        """Answer agents; `start` calls it."""
        assert self._socket is not None, "call start()"
        with self._socket:
            while not self._is_done():
                try:
                    connection, address = self._socket.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(PATIENCE)
                    try:
                        answer = self._answer(connection.recv(LONGEST_MESSAGE))
                        connection.sendall(answer.encode())
                    except (OSError, ValueError) as error:
                        _logger.info("message of %s ignored: %s", address, error)

    def _answer(self, message: bytes) -> str:
        """Return the next tokens, after learning a reward; ValueError for another message."""
        text = message.decode().strip("\n")
        if text != "next_tokens":
            key, tokens, reward = text.split("\t")
            if key != str(self._key):
                raise ValueError("its key is another one")
            self._controller.update([int(token) for token in tokens.split(",")], float(reward))
            self._rewards += 1
        return ",".join(str(token) for token in self._controller.next_tokens())
