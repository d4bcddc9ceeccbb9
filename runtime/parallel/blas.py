"""The number of threads of the BLAS that NumPy has loaded, changed while a pool is open.

NumPy has no function for it: the library is found among those that this process has mapped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

PREFIXES = ("scipy_openblas", "openblas")
SUFFIXES = ("64_", "")
"""How builds of OpenBLAS name their functions: `scipy_openblas_set_num_threads64_`."""


def set_blas_threads(count: int) -> int:
    """Set the number of threads of OpenBLAS; what it was before, or 0 where there is none."""
    found = _functions()
    if found is None:
        return 0
    read, write = found
    before = read()
    write(count)
    return before


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """What reads and what writes the number."""
    for path in _libraries():
        library = ctypes.CDLL(path)
        for prefix in PREFIXES:
            for suffix in SUFFIXES:
                write = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                read = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if write is not None and read is not None:
                    return read, write
    return None


def _libraries() -> list[str]:
    """The files of mapped libraries that may be OpenBLAS."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if "openblas" in line)
    return [path for path in paths if path.startswith("/")]
