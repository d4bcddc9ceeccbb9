"""The state of processes on this machine, from /proc: running, stopped or ended."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

STATES = {"T": "stopped", "t": "stopped by a debugger", "Z": "ended", "X": "ended", "x": "ended"}
"""Meaning of the states in /proc/PID/stat; in every other state the process is running."""


@cache
def machine_id() -> str:
    """Return a text that is equal for processes that see each other in /proc: boot and PID
    namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def host_name() -> str:
    """The name of this machine, as shown in messages."""
    return socket.gethostname()


def start_time(pid: int) -> int:
    """Clock ticks from boot to the start of a process, 0 if there is none; detects reused PIDs."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def process_state(pid: int, started: int) -> str:
    """`"running"`, `"stopped"` or `"ended"`; a process with another start time counts as ended."""
    fields = _stat(pid)
    if not fields or int(fields[19]) != started:
        return "ended"
    return STATES.get(fields[0], "running")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat starting with the state; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def own_pid() -> int:
    """The PID of this process."""
    return os.getpid()
