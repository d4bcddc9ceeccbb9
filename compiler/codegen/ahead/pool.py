"""Processes that compile kernels beside each other, and end with the one that asked for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from compiler.codegen.ahead.jobs import Job
from compiler.errors import CompileError

WORKER = Path(__file__).with_name("worker.py")
_MOST = 32
"""Processes at most: each takes some hundred megabytes."""

Answer = dict[str, Any]
_Outcome = tuple[Job, Answer | BaseException]


def compiled(jobs: Sequence[Job], processes: int | None = None) -> Iterator[tuple[Job, Answer]]:
    """Each job with what its worker answers, in the order they are done.

    `processes` is how many work at once, by default one a processor that may be used. When the
    caller stops listening, or is interrupted, they are ended. Raises CompileError where Triton is
    missing or a worker dies.
    """
    if not jobs:
        return
    many = min(processes or len(os.sched_getaffinity(0)), len(jobs), _MOST)
    waiting: SimpleQueue[Job] = SimpleQueue()
    done: SimpleQueue[_Outcome] = SimpleQueue()
    for job in sorted(jobs, key=_effort, reverse=True):
        waiting.put(job)
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="fluid-kernels-", ignore_cleanup_errors=True)
        place = stack.enter_context(folder)
        for number in range(many):
            worker = stack.enter_context(_working(Path(place, str(number))))
            Thread(target=_serve, args=(worker, waiting, done), daemon=True).start()
        for _ in jobs:
            yield _expect(done.get())


def _effort(job: Job) -> tuple[bool, int]:
    """What takes long goes first, so that all end together."""
    return job.is_product, len(job.source)


@contextmanager
def _working(place: Path) -> Generator[subprocess.Popen[str]]:
    """A worker that does not hear the terminal's Ctrl-C: who started it ends it."""
    place.mkdir()
    names = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    names |= {"TRITON_CACHE_DIR": str(place), "TMPDIR": str(place), "TRITON_ALWAYS_COMPILE": "1"}
    with (place / "log").open("w", encoding="utf-8") as log:
        worker = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)], env=names, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8",
            start_new_session=True,
        )  # fmt: skip
    with suppress(BrokenPipeError), worker:  # which closes its pipes
        try:
            yield worker
        finally:
            worker.kill()


def _serve(
    worker: subprocess.Popen[str], waiting: SimpleQueue[Job], done: SimpleQueue[_Outcome]
) -> None:
    """Hand jobs to one worker as long as there are any."""
    with suppress(Empty):
        while True:
            job = waiting.get_nowait()
            try:
                done.put((job, _asked(worker, job)))
            except (OSError, ValueError) as error:
                done.put((job, error))


def _asked(worker: subprocess.Popen[str], job: Job) -> Answer:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(job.message() + "\n")
    worker.stdin.flush()
    return dict(json.loads(worker.stdout.readline()))


def _expect(outcome: _Outcome) -> tuple[Job, Answer]:
    job, answer = outcome
    if isinstance(answer, BaseException):
        what = f"{job.entry} for {job.gpu}"
        raise CompileError(f"the process that compiled {what} ended, or has no triton") from answer
    return job, answer
