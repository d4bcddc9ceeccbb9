"""Worker processes that compile kernels in parallel and end with the process that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from compiler.codegen.ahead.jobs import KernelJob
from compiler.errors import CompileError
from compiler.support.processors import available_processors
from compiler.support.settings.setting import environment
from compiler.support.settings.systems import TRITON_INTERPRET

WORKER = Path(__file__).with_name("worker.py")
_MOST = 32
"""Most processes: each uses some hundred megabytes."""

Answer = dict[str, Any]
_Outcome = tuple[KernelJob, Answer | BaseException]


def compiled(
    jobs: Sequence[KernelJob], processes: int | None = None
) -> Iterator[tuple[KernelJob, Answer]]:
    """Yield each job with its worker's answer, in the order they finish.

    `processes` is the number of workers, by default one per available processor. They are killed
    when the caller stops iterating or is interrupted. Raises CompileError if a worker dies.
    """
    if not jobs:
        return
    count = min(processes or available_processors(), len(jobs), _MOST)
    waiting: SimpleQueue[KernelJob] = SimpleQueue()
    done: SimpleQueue[_Outcome] = SimpleQueue()
    for job in sorted(jobs, key=_effort, reverse=True):
        waiting.put(job)
    with ExitStack() as stack:
        temporary = TemporaryDirectory(prefix="fluid-kernels-", ignore_cleanup_errors=True)
        folder = stack.enter_context(temporary)
        for number in range(count):
            worker = stack.enter_context(_worker_process(Path(folder, str(number))))
            Thread(target=_serve, args=(worker, waiting, done), daemon=True).start()
        for _ in jobs:
            yield _outcome_or_error(done.get())


def _effort(job: KernelJob) -> tuple[bool, int]:
    """Sort key: long jobs run first, so that all workers finish together."""
    return job.is_product, len(job.source)


@contextmanager
def _worker_process(folder: Path) -> Generator[subprocess.Popen[str]]:
    """Start a worker in its own session, shielded from Ctrl-C; kill it on exit."""
    folder.mkdir()
    names = environment()
    names.pop(TRITON_INTERPRET.name, None)
    names |= {"TRITON_CACHE_DIR": str(folder), "TMPDIR": str(folder), "TRITON_ALWAYS_COMPILE": "1"}
    with (folder / "log").open("w", encoding="utf-8") as log:
        worker = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)], env=names, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8",
            start_new_session=True,
        )  # fmt: skip
    with suppress(BrokenPipeError), worker:  # which closes its pipes
        try:
            yield worker
        finally:
            _kill_group(worker)


def _kill_group(worker: subprocess.Popen[str]) -> None:
    """Kill a worker and the assemblers it started; returns when none can still write files.

    Orphans are reaped by process 1: where it does not, their zombies are waited for a second.
    """
    if not hasattr(os, "killpg"):  # Windows: the worker alone
        worker.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        for _ in range(100):
            os.killpg(worker.pid, 0)  # raises once the group is empty
            time.sleep(0.01)


def _serve(
    worker: subprocess.Popen[str], waiting: SimpleQueue[KernelJob], done: SimpleQueue[_Outcome]
) -> None:
    """Send jobs to one worker until none are left."""
    with suppress(Empty):
        while True:
            job = waiting.get_nowait()
            try:
                done.put((job, _request(worker, job)))
            except (OSError, ValueError) as error:
                done.put((job, error))


def _request(worker: subprocess.Popen[str], job: KernelJob) -> Answer:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(job.message() + "\n")
    worker.stdin.flush()
    return dict(json.loads(worker.stdout.readline()))


def _outcome_or_error(outcome: _Outcome) -> tuple[KernelJob, Answer]:
    job, answer = outcome
    if isinstance(answer, BaseException):
        what = f"{job.entry} for {job.gpu}"
        raise CompileError(f"the worker compiling {what} died") from answer
    return job, answer
