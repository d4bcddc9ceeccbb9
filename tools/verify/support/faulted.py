"""Judges the outcome of a fault: errors vs. expectations, and remaining processes and memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARGIN = 3.0
"""Seconds that an error may come after the deadline, on a busy machine."""

SETTLING = 3.0
"""Seconds after which remaining processes and memory count as leaked."""

Spec = dict[str, Any]
Expected = tuple[str, int, str]
"""An error: its type, the rank it names or -1, and a part of its text."""


@dataclass
class Outcome:
    """The outcome of one fault: its failure, if any, and the times of the errors."""

    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    message: str = ""


@dataclass
class Ended:
    """A process that ended: its output, and its exit code, None if it hung."""

    events: list[Spec]
    complaints: str
    code: int | None


def events(text: str) -> list[Spec]:
    """The lines of JSON that a process printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def began_at(results: Iterable[Ended]) -> float:
    """The time of the fault: as reported by a rank, or when the last one was ready or started."""
    all_events = [event for result in results for event in result.events]
    for kind in ("fault", "ready", "start"):
        times = [event["at"] for event in all_events if event["event"] == kind]
        if times:
            return max(times)
    return 0.0


def judge(
    outcome: Outcome, index: int, result: Ended, expected: Expected, began: float, deadline: float
) -> None:
    """Compare the error of one rank with the expected one."""
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
    """The names of the segments in /dev/shm: its files; a folder there is someone's fast disk."""
    return {path.name for path in Path("/dev/shm").iterdir() if path.is_file()}


def settles(done: Callable[[], bool], seconds: float = SETTLING) -> bool:
    """Whether a predicate becomes true within a number of seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def nothing_left(outcome: Outcome, before: set[str], sessions: Iterable[int]) -> None:
    """Check that nothing remains of these sessions: no process, and no new shared memory."""
    chosen = set(sessions)
    if not settles(lambda: not living(chosen)):
        outcome.problems.append(f"processes remain: {living(chosen)}")
    if not settles(lambda: shared_memory() <= before):
        outcome.problems.append(f"shared memory remains: {sorted(shared_memory() - before)}")


def living(sessions: set[int]) -> dict[int, str]:
    """The running processes of these sessions, with their commands."""
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = stat_fields(path)
        if fields and int(fields[3]) in sessions and fields[0] not in "ZX":
            commands[int(path.name)] = _command(path)
    return commands


def runs(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in "ZX"


def stat_fields(path: Path) -> list[str]:
    """The fields of /proc/PID/stat starting with the state; empty if the process is gone."""
    try:
        return (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _command(path: Path) -> str:
    try:
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return ""
