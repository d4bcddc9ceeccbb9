"""Calls that hold threads of a server: refused by their metadata, limited, ended when late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime.errors import TryAgain, WireError
from runtime.ps.serving.budget import Budget
from runtime.ps.wire.admission import Admission, Limits
from runtime.ps.wire.callers import Caller, caller_of, session_of
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import SERVICE, grpc, make_server, open_channel, unary_call
from tests.support.ports import free_endpoint

TOKEN = Security(token="secret")


def silence() -> Iterator[bytes]:
    """Messages of a call that is left half open."""
    threading.Event().wait(20)
    yield b""


def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds, 10 seconds at most."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.001)


class Served:
    """A server with two threads for guests, and two for the session `member`."""

    def __init__(self) -> None:
        self.endpoint = free_endpoint()
        limits = Limits(members=1, guests=2, each=2, seconds=0.2)
        self.admission = Admission(limits, lambda session: session == "member")
        unary, prompt = {"echo": lambda message, context: message}, {"beat": lambda context: b"!"}
        self.server, _ = make_server(self.endpoint, unary, {}, TOKEN, self.admission, prompt)
        self.server.start()
        self.channel = open_channel(self.endpoint, Security())
        grpc().channel_ready_future(self.channel).result(10)

    def half_open(self, count: int, *metadata: tuple[str, str]) -> list[Any]:
        """Start calls that send no message."""
        call = self.channel.stream_unary(f"/{SERVICE}/echo")
        return [call.future(silence(), timeout=20, metadata=metadata) for _ in range(count)]

    def echo(self, *metadata: tuple[str, str]) -> bytes:
        """Make a valid call."""
        return unary_call(self.channel, "echo")(b"x", timeout=5, metadata=metadata)

    def busy(self, session: str) -> None:
        """Wait until a session, or the guests, have no threads left."""
        until(lambda: self.admission._open[session] == 2)


@pytest.fixture
def served() -> Iterator[Served]:
    created = Served()
    yield created
    created.channel.close()
    created.server.stop(None).wait()


def codes(calls: list[Any]) -> set[str]:
    return {call.code().name for call in calls}


def test_half_open_calls_without_the_token_hold_no_thread(served: Served) -> None:
    calls = served.half_open(50)
    assert codes(calls) == {"UNAUTHENTICATED"}  # although none has sent a message
    assert served.echo(*TOKEN.metadata()) == b"x"


def test_half_open_calls_with_the_token_hold_the_threads_of_guests_only(served: Served) -> None:
    calls = served.half_open(12, *TOKEN.metadata())
    member = (*TOKEN.metadata(), *Caller("member").metadata())
    served.busy("")
    assert served.echo(*member) == b"x"
    calls += served.half_open(2, *member)  # now every thread is taken
    served.busy("member")
    assert unary_call(served.channel, "beat")(b"", metadata=TOKEN.metadata(), timeout=5) == b"!"
    assert codes(served.half_open(1)) == {"UNAUTHENTICATED"}
    until(lambda: all(call.done() for call in calls) or served.admission.end_late())
    assert codes(calls) == {"ABORTED", "CANCELLED"}
    assert served.echo(*TOKEN.metadata()) == b"x"


def test_a_connection_of_guests_has_a_number_of_calls_of_its_own() -> None:
    admission = Admission(Limits(guests=9, each=1))
    with (
        admission.connected("", "a:1"),
        admission.connected("", "b:1"),
        pytest.raises(TryAgain, match="more than 1 calls"),
        admission.connected("", "a:1"),
    ):
        pass
    with admission.connected("", "a:1"):
        pass
    assert not admission._connections


def test_counts_end_with_calls() -> None:
    admission = Admission(Limits(members=1, guests=1, each=1), lambda session: session == "m")
    assert [admission.enter(each) for each in ("x", "y", "m", "m")] == ["", None, "m", None]
    admission.leave("")
    admission.leave("m")
    assert admission.enter("m") == "m" and admission.enter("z") == ""


def test_callers_are_named_by_a_session_or_their_connection() -> None:
    assert caller_of(Caller("s", 3).metadata(), "ipv4:1") == Caller("s", 3)
    assert caller_of((), "ipv4:1") == Caller("connection ipv4:1", None)
    for trainer in ("-1", "x", "٣", "9" * 50):
        assert caller_of([("x-fluid-trainer", trainer)], "c").trainer is None
    assert session_of([("x-fluid-session", "s" * 65)]) == ""


def test_requests_share_a_number_of_bytes() -> None:
    budget = Budget(10)
    with budget.reserved(6, lambda: False, 0.0):
        with pytest.raises(TryAgain), budget.reserved(6, lambda: False, 0.01):
            pass
        with budget.reserved(4, lambda: False, 0.0):
            pass
    too_many = pytest.raises(WireError, match="11 bytes, expected 10")
    with too_many, budget.reserved(11, lambda: False, 0.0):
        pass
    with budget.reserved(10, lambda: False, 0.0):
        pass
