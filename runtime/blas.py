"""Controls the number of BLAS threads that NumPy uses: one if all products are small.

OpenBLAS threads spin while they wait for each other. On a machine with other load, a waiting
thread may lose its core for a scheduler time slice, so that a product of half a millisecond takes
ten; on an idle machine small products gain little from a second thread. The number of threads of a
step depends only on its sizes, never on the load: another number may change the last bit of a sum.

NumPy has no function for this: the library is found among those that this process has loaded, or
in NumPy's wheel where the system does not name them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from compiler.codegen.module import Module, without_ir
from compiler.ir.dims import evaluate
from compiler.support.dataclass import dataclass
from compiler.support.fork_delay import FORK_LOCK
from compiler.support.settings.systems import (
    GOTO_NUM_THREADS,
    OMP_NUM_THREADS,
    OPENBLAS_NUM_THREADS,
)
from runtime.loaded_libraries import loaded_libraries

PREFIXES = ("scipy_openblas", "openblas")
SUFFIXES = ("64_", "")
"""Suffixes of function names in OpenBLAS builds: `scipy_openblas_set_num_threads64_`."""

VARIABLES = (OPENBLAS_NUM_THREADS, GOTO_NUM_THREADS, OMP_NUM_THREADS)
"""Environment variables that set the number of threads; if one is set, every step uses it."""

SMALL = 1 << 25
"""Multiply-adds of the largest product run on one thread: half a millisecond to one millisecond."""

_PRODUCTS = re.compile(r"\b(matmul|dot|vdot|inner|einsum|tensordot|linalg)\b| @ ")
"""What calls BLAS in a module's source."""

Step = Callable[..., Any]


@dataclass
class BlasThreads:
    """The thread pool of a BLAS: `write` sets its size, `most` is the number used for large
    products.
    """

    write: Callable[[int], object]
    most: int
    _sharers: int = 0
    _alone: int = 0

    def share(self) -> None:
        """Limit products to one thread, since ranks share the cores, until the last of all callers
        has called `unshare`.
        """
        if not self._sharers:
            self._alone = self.limit(1)
        self._sharers += 1

    def unshare(self) -> None:
        """End one `share`."""
        self._sharers -= 1
        if not self._sharers:
            self.limit(self._alone)

    def limit(self, count: int) -> int:
        """Limit products to `count` threads; return the previous number."""
        before, self.most = self.most, count
        self._write(count)
        return before

    def _write(self, count: int) -> None:
        """Set the number; a child of a fork would find OpenBLAS's lock of it held for ever."""
        with FORK_LOCK:
            self.write(count)

    def one(self, step: Step) -> Step:
        """Wrap a step so that its products run on one thread."""

        def narrow(*feeds: Any) -> Any:
            if self.most == 1:
                return step(*feeds)
            self._write(1)
            try:
                return step(*feeds)
            finally:
                self._write(self.most)

        return narrow


def with_few_threads(step: Step, elements: Iterable[int]) -> Step:
    """Wrap a step to run on one thread if its products are small.

    `elements` are the element counts of its arrays. A product of matrices of a, b and c elements
    takes at most √(a·b·c) multiply-adds.
    """
    a, b, c = sorted([1, 1, 1, *elements])[-3:]
    if a * b * c > SMALL * SMALL or any(each.is_set() for each in VARIABLES):
        return step
    blas = blas_threads()
    return step if blas is None else blas.one(step)


def may_multiply(module: Module) -> bool:
    """Whether NumPy may compute products in a module's steps: in native code kernels do.

    OpenBLAS changes its number of threads under a lock, for which forks would have to wait.
    """
    return module.target != "native" or _PRODUCTS.search(without_ir(module.source)) is not None


def elements(module: Module, sizes: Mapping[str, int], params: Mapping[str, Any]) -> Iterator[int]:
    """Yield the element counts of all arrays of a step; buffers count four bytes per element."""
    yield from (evaluate(buffer.nbytes, sizes) // 4 for buffer in module.buffers)
    yield from (prod(evaluate(dim, sizes) for dim in feed.shape) for feed in module.feeds)
    yield from (np.size(array) for array in params.values())


@cache
def blas_threads() -> BlasThreads | None:
    """Return the thread pool of OpenBLAS, or None if it is not loaded."""
    functions = _functions()
    return None if functions is None else BlasThreads(functions[1], functions[0]())


def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Return the library functions that get and set the number of threads."""
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
    """Return the paths of loaded libraries that may be OpenBLAS."""
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    bundled = (str(path) for folder in folders for path in sorted(folder.glob("*openblas*")))
    return loaded_libraries("openblas") or list(bundled)
