"""Object files of a module's kernels, compiled by other threads while the module is written.

LLVM runs outside of Python's lock: kernels that are written first are compiled while the next ones
are written. Objects come from the disk cache and go there as those that are compiled later do.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType

from compiler.codegen.native.machine import Machine
from compiler.fork_delay import delay_forks
from runtime.native.executor import EXECUTOR, executor_object
from runtime.native.object_cache import objects
from runtime.native.threads import available

Job = tuple[str, Future[bytes]]
"""The IR text of a kernel, and its object file."""


class EarlyObjects:
    """A context in which `add` starts to compile kernels; when it ends, they are compiled.

    No fork happens within it: a child would free LLVM's objects of threads that it does not have.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
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

    def add(self, name: str, text: str, machine: Machine) -> None:
        """Start to compile a kernel, from its name and IR text."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(available(), "fluid-early")
            self._jobs[EXECUTOR] = "", self._pool.submit(executor_object, machine)
        self._jobs[name] = text, self._pool.submit(_object, name, text, machine)

    def of(self, kernels: Mapping[str, str]) -> dict[str, bytes]:
        """The object files of these kernels, by name, as far as their texts were added, and that of
        the executor. Raises CompileError for invalid IR.
        """
        wanted = {EXECUTOR: "", **kernels} if self._jobs else {}
        pairs = ((name, self._jobs.get(name), text) for name, text in wanted.items())
        return {name: job[1].result() for name, job, text in pairs if job and job[0] == text}


def _object(name: str, text: str, machine: Machine) -> bytes:
    return objects({name: text}, machine)[name]
