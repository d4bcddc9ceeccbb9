"""The number of threads of the BLAS that NumPy has loaded: one where products are small.

Threads of OpenBLAS wait for each other in a loop. On a machine whose cores other programs use, one
of them waits for a slice of time, so that a product of half a millisecond takes ten; on an idle one
small products gain little by a second thread. How many threads a step takes depends on its sizes
only, never on what else runs: another number may change the last bit of a sum.

NumPy has no function for it: the library is found among those that this process has mapped.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.dims import evaluate

PREFIXES = ("scipy_openblas", "openblas")
SUFFIXES = ("64_", "")
"""How builds of OpenBLAS name their functions: `scipy_openblas_set_num_threads64_`."""

VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Where users say how many threads they want; then every step takes so many."""

SMALL = 1 << 25
"""Multiply-adds of a product that one thread computes: half a millisecond to a whole one."""

Step = Callable[..., Any]


@dataclass
class BlasThreads:
    """The threads of a BLAS: `write` sets their number, `most` is what large products take."""

    write: Callable[[int], object]
    most: int

    def limit(self, count: int) -> int:
        """Let products take `count` threads at most from now on; the number before."""
        before, self.most = self.most, count
        self.write(count)
        return before

    def one(self, step: Step) -> Step:
        """The same step, whose products take one thread."""

        def narrow(*feeds: Any) -> Any:
            if self.most == 1:
                return step(*feeds)
            self.write(1)
            try:
                return step(*feeds)
            finally:
                self.write(self.most)

        return narrow


def with_few_threads(step: Step, elements: Iterable[int]) -> Step:
    """A step of arrays with so many elements each, on one thread where its products are small.

    A product of matrices of a, b and c elements takes at most √(a·b·c) multiply-adds.
    """
    a, b, c = sorted([1, 1, 1, *elements])[-3:]
    if a * b * c > SMALL * SMALL or any(os.environ.get(name) for name in VARIABLES):
        return step
    blas = blas_threads()
    return step if blas is None else blas.one(step)


def elements(module: Module, sizes: Mapping[str, int], params: Mapping[str, Any]) -> Iterator[int]:
    """The elements of everything that a step computes with, four bytes each in buffers."""
    yield from (evaluate(each.nbytes, sizes) // 4 for each in module.buffers)
    yield from (prod(evaluate(dim, sizes) for dim in each.shape) for each in module.feeds)
    yield from (np.size(array) for array in params.values())


@cache
def blas_threads() -> BlasThreads | None:
    """The threads of OpenBLAS, or None where it is not loaded."""
    found = _functions()
    return None if found is None else BlasThreads(found[1], found[0]())


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
