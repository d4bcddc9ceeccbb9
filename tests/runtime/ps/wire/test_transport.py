"""Servers and channels: bound alone, with token, and to their endpoint only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runtime.errors import WireError
from runtime.ps.wire.admission import Admission, Limits
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import grpc, make_server, open_channel, stream_call, unary_call
from tests.support.ports import free_endpoint


def echo(message: bytes, context: Any) -> bytes:
    return message[::-1]


def echoes(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for message in messages:
        yield message[::-1]


@pytest.fixture
def endpoint() -> Iterator[str]:
    where = free_endpoint()
    admission = Admission(Limits(guests=4, each=4))
    security = Security(token="secret")
    server, _ = make_server(where, {"echo": echo}, {"echoes": echoes}, security, admission)
    server.start()
    yield where
    server.stop(None).wait()


def test_calls_and_streams_carry_bytes(endpoint: str) -> None:
    security = Security(token="secret")
    with open_channel(endpoint, security) as channel:
        metadata = security.metadata()
        assert unary_call(channel, "echo")(b"abc", metadata=metadata, timeout=20) == b"cba"
        answers = stream_call(channel, "echoes")(iter([b"ab", b"cd"]), metadata=metadata)
        assert list(answers) == [b"ba", b"dc"]


@pytest.mark.parametrize("token", [None, "", "wrong", "secret "])
def test_nothing_is_answered_without_the_token(endpoint: str, token: str | None) -> None:
    with open_channel(endpoint, Security()) as channel:
        metadata = Security(token=token).metadata()
        with pytest.raises(grpc().RpcError) as caught:
            unary_call(channel, "echo")(b"abc", metadata=metadata, timeout=20)
    assert caught.value.code().name == "UNAUTHENTICATED"


def test_a_port_belongs_to_one_server(endpoint: str) -> None:
    with pytest.raises(WireError, match=f"cannot listen at {endpoint}"):
        make_server(endpoint, {}, {}, Security(), Admission(Limits()))


def test_security_comes_from_the_environment(tmp_path: Any) -> None:
    with pytest.raises(WireError, match=r"FLUID_PS_CERT is .*none\.pem, which cannot be read"):
        Security.from_env({"FLUID_PS_CERT": str(tmp_path / "none.pem")})
    (tmp_path / "cert.pem").write_text("x")
    with pytest.raises(WireError, match="belong together"):
        Security.from_env({"FLUID_PS_CERT": str(tmp_path / "cert.pem")})
    assert Security.from_env({"FLUID_PS_TOKEN": "t"}).metadata() == (("x-fluid-token", "t"),)
