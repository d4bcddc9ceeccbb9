"""Launchers of several machines: for whom they wait, and how that ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic, sleep

import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from fleet.launch import meeting
from fleet.launch.meeting import LauncherMeeting, client, meet
from runtime import wait_notice
from runtime.errors import RendezvousError

MACHINES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def _hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PAUSE", 0.05)
    monkeypatch.setattr(wait_notice, "FIRST_SECONDS", 0.2)


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=5), wait_for_workers=False)


@pytest.fixture
def stranger() -> Iterator[str]:
    """The endpoint of a program that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def at(master: str, own: str = "a", limit: float = 5.0) -> LauncherMeeting:
    return LauncherMeeting(master, 3, 3, MACHINES, own, limit, "job")


def until(capsys: pytest.CaptureFixture[str], text: str) -> None:
    said, end = "", monotonic() + 10
    while text not in said and monotonic() < end:
        sleep(0.05)
        said += capsys.readouterr().err
    assert text in said


def test_launchers_say_for_whom_they_wait(
    store: TCPStore, capsys: pytest.CaptureFixture[str]
) -> None:
    master = f"127.0.0.1:{store.port}"
    missed = pytest.raises(RendezvousError, match=f"c did not come to {master} in 5 s")
    with missed as seen, meet(at(master)):
        until(capsys, "fluid launch: waits for b, c: ")
        with meet(at(master, "b")) as have_met:
            until(capsys, "fluid launch: waits for c: ")
            have_met()
        raise RendezvousTimeoutError
    assert "join_timeout" in seen.value.hint


def test_machines_that_are_not_listed_are_another_machine(
    store: TCPStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with meet(LauncherMeeting(f"127.0.0.1:{store.port}", 1, 2)):
        until(capsys, "fluid launch: waits for another machine: ")


def test_a_port_of_another_program_is_an_error(
    stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "ANSWER", 0.5)
    with pytest.raises(RendezvousError, match=f"{stranger} is taken") as seen, meet(at(stranger)):
        pass
    assert "--master" in seen.value.hint


def test_the_first_machine_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    missed = pytest.raises(RendezvousError, match=r"192.0.2.1 did not come to 192.0.2.1:9")
    with missed, meet(at("192.0.2.1:9", limit=0.6)):
        pass
    assert "waits for 192.0.2.1, which hosts the meeting at port 9" in capsys.readouterr().err


def test_a_meeting_may_begin_before_its_store(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with meet(at(f"127.0.0.1:{port}")) as have_met:
        until(capsys, "waits for b, c")
        store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
        end = monotonic() + 10
        while not store.check(["fluid/machine/job/a"]) and monotonic() < end:
            sleep(0.05)
        assert store.check(["fluid/machine/job/a"])
        have_met()
    assert client(at(f"127.0.0.1:{port}")).check(["fluid/machine/job/a"])
