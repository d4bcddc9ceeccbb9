"""The memory that is free, compared with data-dependent sizes before memory is taken.

The functions are copied into generated modules, so they use built-ins and NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE_BYTES = 1 << 28
"""Bytes of an array up to which the memory of the machine is not looked up."""

MEMORY_FILE = "/proc/meminfo"
CONTAINER_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.stat", "anon"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        "total_rss",
    ),
)
"""The limit of a container, and what its processes use: version 2 of control groups, and 1."""


def expect_memory(sizes: Sequence[Any], nbytes: int) -> None:
    """Raise MemoryError if an array of `sizes`, and `nbytes` for each element, exceeds free memory.

    `nbytes` counts what is allocated at once: the element itself and its temporaries.
    """
    total = nbytes
    for size in sizes:
        total *= max(int(size), 0)
    if total > LARGE_BYTES:
        expect_free(total, tuple([int(size) for size in sizes]))


def large_array(sizes: Sequence[Any], dtype: str) -> NDArray[Any]:
    """Allocate an uninitialised array; MemoryError if it exceeds the free memory."""
    expect_memory(sizes, np.dtype(dtype).itemsize)
    return np.empty(sizes, dtype)


def expect_free(total: int, shape: tuple[int, ...]) -> None:
    """Raise MemoryError if `total` bytes, of an array of a shape, are more than the free memory."""
    free, memory = free_memory()
    if free is not None and memory is not None and total > free:
        raise MemoryError(
            f"a value of shape {shape} takes {total / 2**30:.2f} GiB, more than the "
            f"{free / 2**30:.2f} GiB that are free of the {memory / 2**30:.2f} GiB of this machine"
        )


def free_memory() -> tuple[int | None, int | None]:
    """Return the bytes of memory and swap space that are free, and those that there are.

    Those of the container if it has fewer; None where the system does not say.
    """
    kib = number_fields(MEMORY_FILE)
    if "MemTotal:" not in kib or "MemAvailable:" not in kib:
        return None, None
    total = 1024 * (kib["MemTotal:"] + kib.get("SwapTotal:", 0))
    free = 1024 * (kib["MemAvailable:"] + kib.get("SwapFree:", 0))
    for limit, usage, field in CONTAINER_FILES:
        try:
            with open(limit, encoding="ascii") as file:  # noqa: PTH123 (copied into modules, which import no pathlib)
                most = int(file.read())
        except (OSError, ValueError):
            continue
        if 0 < most < total:
            total, free = most, min(free, most - number_fields(usage).get(field, 0))
    return free, total


def number_fields(path: str) -> dict[str, int]:
    """Return the first number after each name in a file of lines; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 (copied into modules, which import no pathlib)
            rows = [line.split() for line in file]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1}
    except (OSError, ValueError):
        return {}
