"""Runs each test file in a separate process and collects the outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[3]
CHILD = "tools.verify.reference_tests.child"
SETTINGS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOG_minloglevel": "2"}


SUBFOLDERS = ("", "ngraph/", "sequence/")
"""Folders below that of the tests whose tests are run too."""


@dataclass(frozen=True)
class Outcome:
    """A test of a file: passed, failed or skipped, and why."""

    file: str
    test: str
    outcome: str
    reason: str = ""


def files_of(folder: Path, only: Sequence[str]) -> list[str]:
    """The names of the test files of a folder, without suffix; those that contain one of `only`.

    Files of its subfolders are named `sequence/test_…`.
    """
    found = [
        (below, path.stem) for below in SUBFOLDERS for path in (folder / below).glob("test_*.py")
    ]
    names = sorted(below + stem for below, stem in found)
    return [name for name in names if not only or any(word in name for word in only)]


def run_all(
    folder: Path, names: Sequence[str], python: str | None, limit: float, jobs: int,
    beside: str | None = None,
) -> Iterator[list[Outcome]]:  # fmt: skip
    """The outcomes of the tests of each file, in the order of the names.

    With `beside`, an interpreter with Paddle 1.8.5, the reason of each failure ends with the
    outcome of the same test there.
    """
    run = partial(run_file, folder, python=python, limit=limit)
    with ThreadPoolExecutor(jobs) as pool:
        for name, outcomes in zip(names, pool.map(run, names), strict=True):
            if beside and any(outcome.outcome == "failed" for outcome in outcomes):
                outcomes = compared(outcomes, run_file(folder, name, beside, limit))
            yield outcomes


def compared(outcomes: Sequence[Outcome], others: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, failures with what the same test of release 1.8.5 gave."""
    texts = {other.test: f"{other.outcome} {other.reason}".strip() for other in others}
    return [
        replace(outcome, reason=f"{outcome.reason} (1.8.5: {texts.get(outcome.test, 'not run')})")
        if outcome.outcome == "failed"
        else outcome
        for outcome in outcomes
    ]


def run_file(folder: Path, name: str, python: str | None, limit: float) -> list[Outcome]:
    """The outcomes of the tests of a file, plus a failure if the process did not succeed.

    `python` is an interpreter with Paddle 1.8.5, or None for this package; `limit` is in seconds.
    """
    with TemporaryDirectory(prefix="tests-") as space:
        results = Path(space) / "results.jsonl"
        results.touch()
        why = run_child(command(python, folder, name, results), Path(space), limit)
        lines = results.read_text(encoding="utf-8").splitlines()
    outcomes = [Outcome(name, **json.loads(line)) for line in lines]
    if why or not outcomes:
        outcomes.append(Outcome(name, "(process)", "failed", why or "the file has no tests"))
    return outcomes


def command(python: str | None, folder: Path, name: str, results: Path) -> list[str]:
    """The command that runs the tests of a file."""
    start = [python] if python else [sys.executable, "-m", "fluid", "run", "--cpu"]
    return [*start, "-m", CHILD, str(folder.resolve()), name, str(results)]


def run_child(command: Sequence[str], space: Path, limit: float) -> str:
    """Run a process in a folder; return the reason for a failure, or ""."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, cwd=space, env=environment, timeout=limit, capture_output=True,
            encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:g} s"
    if not done.returncode:
        return ""
    last = (done.stderr.strip().splitlines() or ["nothing on the standard error stream"])[-1]
    return f"ended with {done.returncode}: {last[:300]}"
