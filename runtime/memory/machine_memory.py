"""The memory of this machine, of which no step can take more."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CONTAINER = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""The limit of a container: version 2 of control groups, and version 1."""

_TOTALS = ("MemTotal:", "SwapTotal:")


@cache
def machine_memory() -> int | None:
    """Return the bytes of memory and swap space, or the limit of the container if that is lower.

    None where the system does not say.
    """
    try:
        lines = [line.split() for line in _MEMINFO.read_text(encoding="ascii").splitlines()]
        total = 1024 * sum(int(line[1]) for line in lines if line[0] in _TOTALS)
    except (OSError, ValueError, IndexError):
        return None
    return min([total, *filter(None, map(_container_limit, _CONTAINER))]) or None


def _container_limit(path: Path) -> int | None:
    """Return the number in a file of limits; None for none."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
