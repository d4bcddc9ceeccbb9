"""The key-value server: keys and values, limits, time limits."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from fleet import key_value_server
from fleet.key_value_server import KVServer


@pytest.fixture
def server() -> Iterator[KVServer]:
    result = KVServer(0, {"all": 2})
    result.start()
    yield result
    result.stop()


def ask(server: KVServer, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(server.endpoint, timeout=10)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def connected(server: KVServer) -> socket.socket:
    host, _, port = server.endpoint.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_keys_and_values(server: KVServer) -> None:
    assert ask(server, "GET", "/all/0") == (404, b"")
    assert ask(server, "PUT", "/all/0", b"127.0.0.1:6170\0") == (200, b"")
    assert ask(server, "GET", "/all/0") == (200, b"127.0.0.1:6170\0")
    assert ask(server, "GET", "/trainer/0") == (404, b"")


def test_it_should_stop_when_all_keys_are_deleted(server: KVServer) -> None:
    for key in "001":
        assert not server.should_stop()
        assert ask(server, "DELETE", f"/all/{key}")[0] == 200
    assert server.should_stop() and server.shoud_stop()
    assert server.http_server.get_deleted_size("all") == 2


@pytest.mark.parametrize("path", ["/", "/all", "/all/../x", "/a/b/c", "/a/b?c", "/" + "a" * 300])
def test_other_paths_are_rejected(server: KVServer, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert ask(server, method, path, b"x" if method == "PUT" else None)[0] == 400


def test_sizes_are_limited(server: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        assert ask(server, "PUT", "/all/0", b"x" * (key_value_server.VALUE_BYTES + 1))[0] == 413
    monkeypatch.setattr(key_value_server, "TOTAL_BYTES", 10)
    assert ask(server, "PUT", "/all/0", b"x" * 10)[0] == 200
    assert ask(server, "PUT", "/all/1", b"x")[0] == 413
    assert ask(server, "PUT", "/all/0", b"y" * 10)[0] == 200
    monkeypatch.setattr(key_value_server, "KEYS", 0)
    assert ask(server, "PUT", "/all/2", b"")[0] == 413
    assert ask(server, "DELETE", "/all/2")[0] == 413


def test_a_request_without_a_length_is_rejected(server: KVServer) -> None:
    connection = http.client.HTTPConnection(server.endpoint, timeout=10)
    connection.putrequest("PUT", "/all/0")
    connection.putheader("Content-Length", "many")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def test_a_slow_request_ends(server: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_value_server, "REQUEST_SECONDS", 0.1)
    with connected(server) as slow:
        slow.sendall(b"PUT /all/0 HTTP/1.1\r\nContent-Le")
        assert ask(server, "PUT", "/all/1", b"x")[0] == 200  # others do not wait for it
        assert slow.recv(100) == b""


@pytest.mark.parametrize("head", [b"", b"PUT /all/0 HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"])
def test_bytes_that_trickle_do_not_prolong_a_request(
    server: KVServer, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    """Each byte comes in time, of the headers or of the body; the request does not."""
    monkeypatch.setattr(key_value_server, "REQUEST_SECONDS", 0.1)
    started = time.monotonic()
    with connected(server) as slow, pytest.raises(OSError):  # reset, or broken pipe
        slow.sendall(head)
        while time.monotonic() - started < 5:
            slow.sendall(b"x")
            time.sleep(0.02)


def test_idle_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is told so, and is answered when they have ended."""
    monkeypatch.setattr(key_value_server, "CONNECTIONS", 3)
    monkeypatch.setattr(key_value_server, "REQUEST_SECONDS", 0.2)
    server = KVServer(0)
    server.start()
    before = threading.active_count()
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(server)) for _ in range(20)]
        status, body = ask(server, "GET", "/all/0")
        assert (status, body[:23]) == (503, b"3 connections are open,")
        assert threading.active_count() - before <= 3
        assert all(each.recv(9) in (b"", b"HTTP/1.0 ") for each in idle)
    assert ask(server, "GET", "/all/0")[0] == 404
    server.stop()


def test_it_listens_at_its_address_alone(server: KVServer) -> None:
    assert server.endpoint.startswith("127.0.0.1:")
    with pytest.raises(OSError, match="in use"):
        KVServer(int(server.endpoint.rpartition(":")[2]))
