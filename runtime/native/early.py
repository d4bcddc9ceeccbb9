"""Object files of a module's kernels, compiled by other threads while the module is written.

LLVM runs outside of Python's lock: kernels that are written first are compiled while the next ones
are written. Objects come from the disk cache, as those that are compiled later do, and go there
when all are compiled: threads that wait for files would wait for Python's lock each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Thread
from types import TracebackType

from compiler.codegen.native.executor import executor_text
from compiler.codegen.native.machine import Machine
from compiler.support.digested_files import DigestedFiles
from compiler.support.fork_delay import delay_forks
from runtime.native.build import build
from runtime.native.executor import EXECUTOR
from runtime.native.object_cache import digest, user_cache
from runtime.native.threads import available


class EarlyObjects:
    """A context in which `add` starts to compile kernels; when it ends, they are compiled.

    No fork happens within it: a child would free LLVM's objects of threads that it does not have.
    """

    def __init__(self) -> None:
        self._added: dict[str, tuple[str, str]] = {}  # the text and the digest of each kernel
        self._found: dict[str, bytes] = {}
        self._jobs: dict[str, Future[bytes]] = {}
        self._cache: DigestedFiles | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._context = ExitStack()

    def __enter__(self) -> EarlyObjects:
        self._context.enter_context(delay_forks())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._context:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=kind is not None)
        if self._cache is not None and self._jobs:
            Thread(target=self._store, name="fluid-store", args=[self._cache]).start()

    def start(self, machine: Machine) -> ThreadPoolExecutor:
        """Start to compile the executor, which every module needs; the first kernels then find LLVM
        loaded.
        """
        if self._pool is None:
            self._cache = user_cache()
            self._pool = ThreadPoolExecutor(available(), "fluid-early")
            self.add(EXECUTOR, executor_text(machine), machine)
        return self._pool

    def add(self, name: str, text: str, machine: Machine) -> None:
        """Start to compile a kernel, from its name and IR text, unless the cache has it."""
        pool, key = self.start(machine), digest(text, machine)
        self._added[name] = text, key
        if key in self._jobs or key in self._found:
            return
        cached = None if self._cache is None else self._cache.find(key)
        if cached is None:
            self._jobs[key] = pool.submit(_object, name, text, machine)
        else:
            self._found[key] = cached

    def of(self, kernels: Mapping[str, str]) -> dict[str, bytes]:
        """The object files of these kernels, by name, as far as their texts were added, and that of
        the executor. Raises CompileError for invalid IR.
        """
        added = {
            name: key
            for name, (text, key) in self._added.items()
            if name == EXECUTOR or kernels.get(name) == text
        }
        return {name: self._object(key) for name, key in added.items()}

    def _object(self, key: str) -> bytes:
        return self._found[key] if key in self._found else self._jobs[key].result()

    def _store(self, cache: DigestedFiles) -> None:
        """Store what was compiled."""
        jobs = {key: job for key, job in self._jobs.items() if not job.cancelled()}
        compiled = {key: job.result() for key, job in jobs.items() if job.exception() is None}
        if compiled:
            cache.put(compiled)


def _object(name: str, text: str, machine: Machine) -> bytes:
    return build({name: text}, machine)[name]
