"""Endpoints of the form host:port, and sockets that listen on one address only."""

from __future__ import annotations

import errno
import os
import socket

from compiler.support.settings.fluid import FLUID_ENDPOINT_FD
from compiler.support.settings.setting import export
from runtime.collective.processes import host_name
from runtime.errors import RendezvousError

Address = tuple[str, int]


def parse_endpoint(endpoint: str) -> Address:
    """Split `host:port` or `[host]:port` into host and port; raises RendezvousError if malformed.

    >>> parse_endpoint("127.0.0.1:6170")
    ('127.0.0.1', 6170)
    """
    host, colon, port = endpoint.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise RendezvousError(f"an endpoint is host:port, not {endpoint!r}")
    return host.strip("[]"), int(port)


def accepts_connections(endpoint: str, limit: float) -> bool:
    """Whether something listens at an endpoint and accepts a connection within `limit` seconds."""
    try:
        with socket.create_connection(parse_endpoint(endpoint), limit):
            return True
    except OSError:
        return False


def listen(endpoint: str) -> socket.socket:
    """Return a socket that listens on an endpoint of this machine, on that address only.

    A socket opened by the launcher for this endpoint is used if there is one. Raises
    RendezvousError if the port is in use or the address does not belong to this machine.
    """
    host, port = parse_endpoint(endpoint)
    if opened := _opened_by_launcher(host, port):
        return opened
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise RendezvousError(f"the host of endpoint {endpoint} is unknown: {error}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise _cannot_listen(endpoint, error) from error
    return listener


def _opened_by_launcher(host: str, port: int) -> socket.socket | None:
    """Return the socket that a launcher opened for this process, if it has this address."""
    number = FLUID_ENDPOINT_FD.read(error=RendezvousError)
    if number is None:
        return None
    try:
        copy = os.dup(number)
    except OSError:
        return None
    try:
        opened = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    listens = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listens and opened.getsockname()[:2] == (host, port):
        export({FLUID_ENDPOINT_FD.name: None})
        os.close(number)
        return opened
    opened.close()
    return None


def _cannot_listen(endpoint: str, error: OSError) -> RendezvousError:
    if error.errno == errno.EADDRINUSE:
        return RendezvousError(
            f"rank 0 cannot host the rendezvous at {endpoint}: the port is in use",
            hint="is an earlier run or another process with rank 0 still there? "
            "else take another port in the list of endpoints",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return RendezvousError(
            f"rank 0 cannot host the rendezvous at {endpoint}: {host_name()} has no such address",
            hint="the first endpoint must be an address of the machine of rank 0",
        )
    return RendezvousError(f"rank 0 cannot host the rendezvous at {endpoint}: {error}")
