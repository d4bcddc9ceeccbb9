"""Ports and endpoints of this machine at which nobody listens."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from itertools import count

FIRST_PORT, LAST_PORT = 12000, 32000
"""Ports outside the system's ephemeral range."""

_numbers = count(random.SystemRandom().randrange(FIRST_PORT, LAST_PORT))


def free_ports(number: int) -> list[int]:
    """Unused loopback ports; distinct over all calls in this process."""
    ports: list[int] = []
    while len(ports) < number:
        port = FIRST_PORT + next(_numbers) % (LAST_PORT - FIRST_PORT)
        if _binds(port):
            ports.append(port)
    return ports


def free_endpoint() -> str:
    """An unused endpoint `127.0.0.1:PORT`."""
    return free_endpoints(1)[0]


def free_endpoints(number: int) -> list[str]:
    """Unused endpoints `127.0.0.1:PORT`, distinct over all calls in this process."""
    return [f"127.0.0.1:{port}" for port in free_ports(number)]


def _binds(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
