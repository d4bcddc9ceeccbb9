"""How the launchers of several machines meet: what each waits for, and for how long.

torch's agent waits without a word, and for ever if another program has the port. So a launcher
looks at the port first, and while the agent waits it says for whom: each writes its address to the
store.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread
from time import monotonic
from typing import Protocol

from compiler.support.dataclass import dataclass
from runtime.collective.endpoint import accepts_connections
from runtime.collective.engine import distributed, seconds
from runtime.collective.slices import call_in_slices
from runtime.errors import RendezvousError
from runtime.wait_notice import WaitNotice

LIMIT = 600.0
"""Seconds for all machines to come, unless `join_timeout` of the rendezvous is another number."""

ANSWER = 10.0
"""Seconds in which a store answers."""

PAUSE = 0.5
"""Seconds between two looks."""


class LauncherStore(Protocol):
    """What launchers use of torch's TCPStore."""

    def set(self, key: str, value: str) -> None:
        """Store a value."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Add to a number; returns the sum."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have values."""
        ...


@dataclass(frozen=True)
class LauncherMeeting:
    """Where `least` to `most` machines meet: `master` is `host:port`.

    `machines` are the addresses of all, if they are known; `own` is this one's; `limit` is in
    seconds; `job_id` tells jobs at one store apart.
    """

    master: str
    least: int
    most: int
    machines: tuple[str, ...] = ()
    own: str = ""
    limit: float = LIMIT
    job_id: str = ""

    @property
    def text(self) -> str:
        """The first line that a launcher prints."""
        number = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"meets {number} machines at {self.master}; each of them runs the same command"

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        host, _, port = self.master.rpartition(":")
        return host, int(port)

    def key(self, machine: str) -> str:
        """The key in the store of a machine that has come."""
        return f"fluid/machine/{self.job_id}/{machine}"

    def missed(self, left: Sequence[str]) -> RendezvousError:
        """The error for machines that did not come in time."""
        whom = ", ".join(left) or "another machine"
        return RendezvousError(
            f"{whom} did not come to {self.master} in {self.limit:g} s",
            hint="run the same command on each machine; "
            "--rdzv_conf join_timeout=SECONDS waits longer",
        )


class Watcher:
    """Says whom a launcher waits for, from its own thread, until `end` is called."""

    def __init__(self, meeting: LauncherMeeting) -> None:
        self._meeting = meeting
        self._end = Event()
        self._thread = Thread(target=self._run, daemon=True, name="meeting")
        self.left = [machine for machine in meeting.machines if machine != meeting.own]
        """The machines that have not come, as far as is known."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """All have come, or the launcher ends."""
        self._end.set()

    def _run(self) -> None:
        notice, store = WaitNotice(say, self._meeting.limit), None
        while not self._end.wait(PAUSE):
            with suppress(RuntimeError, RendezvousError):
                if store is None and accepts_connections(self._meeting.master, PAUSE):
                    store = self._registered()
                if store is not None:
                    self.left = [m for m in self.left if not store.check([self._meeting.key(m)])]
            notice.tick(lambda: ", ".join(self.left) or "another machine")

    def _registered(self) -> LauncherStore:
        """A store that has the address of this machine."""
        store = client(self._meeting, self._end.is_set)
        store.set(self._meeting.key(self._meeting.own), "")
        return store


@contextmanager
def meet(meeting: LauncherMeeting) -> Generator[Callable[[], None]]:
    """While the launchers of several machines meet; yields a function to call when they have.

    Raises RendezvousError if the port belongs to another program, if nobody hosts the meeting, and,
    within the block, for an error of torch's rendezvous, which ends at the limit.
    """
    say(meeting.text)
    _expect_store(meeting)
    watcher = Watcher(meeting)
    watcher.start()
    try:
        yield watcher.end
    except _rendezvous_errors() as error:
        raise meeting.missed(watcher.left) from error
    finally:
        watcher.end()


def say(text: str) -> None:
    """Print a line of the launcher."""
    print(f"fluid launch: {text}", file=sys.stderr, flush=True)


def client(
    meeting: LauncherMeeting, is_given_up: Callable[[], bool] = lambda: False
) -> LauncherStore:
    """A connection to the store of a meeting. Raises RendezvousError if another program answers."""
    begin = monotonic()

    def check() -> None:
        if monotonic() - begin > ANSWER or is_given_up():
            raise RendezvousError(
                f"{meeting.master} is taken: what listens there is not a job's launcher",
                hint="choose another port: --master HOST:PORT",
            )

    def connect() -> LauncherStore:
        store: LauncherStore = distributed().TCPStore(
            *meeting.address, None, False, timeout=seconds(ANSWER), wait_for_workers=False
        )
        store.add("fluid/launchers", 1)
        return store

    return call_in_slices(connect, check)


def _expect_store(meeting: LauncherMeeting) -> None:
    """Raise RendezvousError unless a store listens at the port, or this machine can open one."""
    host, port = meeting.address
    notice, begin = WaitNotice(say, meeting.limit), monotonic()
    while not accepts_connections(meeting.master, PAUSE):
        if is_own(host):
            return
        if monotonic() - begin > meeting.limit:
            raise meeting.missed([host])
        notice.tick(lambda: f"{host}, which hosts the meeting at port {port}")
        Event().wait(PAUSE)
    try:
        client(meeting)
    except RuntimeError as error:
        if isinstance(error, RendezvousError):
            raise
        raise RendezvousError(f"{meeting.master} cannot be used: {error}") from error


def is_own(host: str) -> bool:
    """Whether a host is this machine: it can listen there.

    >>> is_own("127.0.0.1"), is_own("192.0.2.1")
    (True, False)
    """
    with suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    return False


def _rendezvous_errors() -> type[Exception]:
    """The errors of torch's rendezvous."""
    return import_module("torch.distributed.elastic.rendezvous.api").RendezvousError
