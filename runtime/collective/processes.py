"""Processes of this machine as /proc shows them: whether one runs, is stopped or has ended."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

STATES = {"T": "stopped", "t": "stopped by a debugger", "Z": "ended", "X": "ended", "x": "ended"}
"""What the states of /proc/PID/stat mean for a rank; every other state is a process that runs."""


@cache
def machine_id() -> str:
    """Text that is equal for processes that see each other in /proc: boot and PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def host_name() -> str:
    """The name of this machine, as messages show it."""
    return socket.gethostname()


def start_time(pid: int) -> int:
    """Clock ticks from boot to the start of a process, 0 where there is none: PIDs are reused."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def process_state(pid: int, started: int) -> str:
    """`"running"`, `"stopped"` or `"ended"`; a process with another start time is another one."""
    fields = _stat(pid)
    if not fields or int(fields[19]) != started:
        return "ended"
    return STATES.get(fields[0], "running")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def own_pid() -> int:
    """The number of this process."""
    return os.getpid()
