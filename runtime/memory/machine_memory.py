"""The memory of this machine, of which no step can take more."""

from __future__ import annotations

from functools import cache

from compiler.support.free_memory import free_memory


@cache
def machine_memory() -> int | None:
    """Return the bytes of memory and swap space, or the limit of the container if that is lower.

    None where the system does not say.
    """
    return free_memory()[1]
