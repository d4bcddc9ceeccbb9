"""What came of a fault: errors held against what was expected, and what was left behind."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

MARGIN = 3.0
"""Seconds that an error may come after the deadline, on a machine that others use."""

SETTLING = 3.0
"""Seconds after which what is left behind was left for good."""

FIRST_PORT, LAST_PORT = 12000, 32000
"""Ports that the system gives to no connection by itself."""

Spec = dict[str, Any]
Expected = tuple[str, int, str]
"""An error: its type, the rank it names or -1, and a part of its text."""

_ports = count(random.SystemRandom().randrange(FIRST_PORT, LAST_PORT))


@dataclass
class Outcome:
    """What came of one fault: what is wrong with it, if anything, and when it was seen."""

    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    message: str = ""


@dataclass
class Ended:
    """A process that was waited for: what it printed, and its exit code, None where it hung."""

    events: list[Spec]
    complaints: str
    code: int | None


def free_ports(number: int) -> list[int]:
    """Ports of the loopback that nobody uses now; calls get other ones, in this process."""
    found: list[int] = []
    while len(found) < number:
        port = FIRST_PORT + next(_ports) % (LAST_PORT - FIRST_PORT)
        with ExitStack() as stack:
            each = stack.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def events(text: str) -> list[Spec]:
    """The lines of JSON that a process printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def began_at(results: Iterable[Ended]) -> float:
    """When the fault was: as a rank said, or when the last one was ready, or had started."""
    found = [event for each in results for event in each.events]
    for kind in ("fault", "ready", "start"):
        times = [event["at"] for event in found if event["event"] == kind]
        if times:
            return max(times)
    return 0.0


def judge(
    outcome: Outcome, index: int, result: Ended, expected: Expected, began: float, deadline: float
) -> None:
    """Hold the error of one rank against what was expected."""
    if result.code != 1:
        end = f"rank {index} ended by {result.code}, not 1 (None: it hung)"
        outcome.problems.append(f"{end}: {result.complaints[-500:]}")
    errors = [event for event in result.events if event["event"] == "error"]
    if not errors:
        shown = [event["event"] for event in result.events]
        outcome.problems.append(f"rank {index} raised nothing: {shown} {result.complaints[-500:]}")
        return
    kind, rank, text = expected
    error, seconds = errors[0], errors[0]["at"] - began if began else 0.0
    outcome.seconds = max(outcome.seconds, seconds)
    outcome.message = error["message"]
    named = error["type"] == kind and text in error["message"]
    if not named or (rank >= 0 and error["rank"] != rank):
        outcome.problems.append(f"rank {index} raised {error['type']}: {error['message']}")
    if seconds > deadline + MARGIN:
        outcome.problems.append(f"rank {index} raised after {seconds:.1f} s")


# What is left behind


def shared_memory() -> set[str]:
    """The names in /dev/shm."""
    return {path.name for path in Path("/dev/shm").iterdir()}


def settles(done: Callable[[], bool], seconds: float = SETTLING) -> bool:
    """Whether something becomes true within some seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def nothing_left(outcome: Outcome, before: set[str], sessions: Iterable[int]) -> None:
    """See that nothing is left of these sessions: no process, and no new name of shared memory."""
    chosen = set(sessions)
    if not settles(lambda: not living(chosen)):
        outcome.problems.append(f"processes are left: {living(chosen)}")
    if not settles(lambda: shared_memory() <= before):
        outcome.problems.append(f"shared memory is left: {sorted(shared_memory() - before)}")


def living(sessions: set[int]) -> dict[int, str]:
    """The processes of these sessions that have not ended, with what they run."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = stat_fields(path)
        if fields and int(fields[3]) in sessions and fields[0] not in "ZX":
            found[int(path.name)] = _command(path)
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in "ZX"


def stat_fields(path: Path) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none where the process is gone."""
    try:
        return (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _command(path: Path) -> str:
    try:
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return ""
