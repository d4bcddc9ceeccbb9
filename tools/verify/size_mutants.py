"""Breaks the code beyond each threshold of sizes, and counts how many of the breaks tests notice.

    python -m tools.verify.size_mutants                 all mutants, one after the other
    python -m tools.verify.size_mutants --only sum_ units --jobs 2
    python -m tools.verify.size_mutants --list

A mutant (`tools.verify.mutations.sizes`) is one change of a source file: the last part of a
reduction is dropped, or read twice, lanes read one element, a tail is not masked, an index has too
few bits. It is made in a copy of the packages in a temporary folder, where the tests run that it
names: a few of `make test`. It is caught if they fail, crash or do not end. Each selection of tests
must pass without a mutant first. The exit code is 1 if a mutant survives or does not apply.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tools.verify.mutations.sizes.catalogue import MUTANTS, WITHOUT
from tools.verify.mutations.sizes.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = "compiler runtime fluid fleet tests bench tools pyproject.toml conftest.py".split()
TIMEOUT = 300
"""Seconds after which tests count as not ending."""

PYTEST = ("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not slow")
TITLE = "# Mutants of the code beyond thresholds of sizes"


class Copy:
    """The packages in a folder of their own, in which files may be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        self.cache = folder / "cache"
        self.folder.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", "results", ".hypothesis")
        for name in COPIED:
            source, target = ROOT / name, self.folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)

    def run(self, tests: Sequence[str]) -> str:
        """Run tests with empty caches; return the first that fails, "" if none does."""
        shutil.rmtree(self.cache, ignore_errors=True)
        command = [sys.executable, *PYTEST, *tests]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end after {TIMEOUT} s"
        if done.returncode > 1:
            ran = f"pytest ended with {done.returncode}: no tests ran"
            print(f"{ran} of {' '.join(tests)}\n{done.stdout[-2000:]}", file=sys.stderr)
            return ""
        return first_failure(done.returncode, done.stdout + done.stderr)

    def _environment(self) -> Mapping[str, str]:
        paths = {"PYTHONPATH": str(self.folder), "FLUID_CACHE": str(self.cache)}
        return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **paths}

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant to its file while the block runs."""
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        self._write(path, mutant.applied(text))
        try:
            yield
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Write a source file; its bytecode, which may look as new as it, is removed."""
        path.write_text(text, encoding="utf-8")
        for file in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            file.unlink()


def first_failure(code: int, output: str) -> str:
    """The first test that failed, from the output of pytest; "" for exit code 0.

    >>> first_failure(1, "FAILED tests/a.py::test_b[1] - AssertionError: 2 != 3")
    'tests/a.py::test_b[1]'
    >>> first_failure(-11, "")
    'the process ended with -11'
    """
    if code == 0:
        return ""
    test = r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\](?= - |$))?)(?: - .*)?$"
    match = re.search(test, output, re.MULTILINE)
    return match[1] if match else f"the process ended with {code}"


class Copies:
    """As many copies as tests run at a time."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._free = SimpleQueue[Copy]()
        for number in range(jobs):
            (folder / str(number)).mkdir()
            self._free.put(Copy(folder / str(number)))

    @contextmanager
    def one(self) -> Iterator[Copy]:
        """A copy that no other thread has."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def without_mutant(self, tests: Sequence[str]) -> str:
        """What fails as it is; "" for nothing."""
        with self.one() as copy:
            return copy.run(tests)

    def with_mutant(self, mutant: Mutant) -> str:
        """What fails by a mutant; "" for nothing."""
        with self.one() as copy, copy.changed(mutant):
            return copy.run(mutant.tests)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="names or thresholds with a text")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="tests that run at a time (1)")
    parser.add_argument("--page", type=Path, help="write the table to this file, too")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if _is_chosen(mutant, options.only)]
    if options.list:
        print("\n".join(f"{mutant.name}: {mutant.kind}, {mutant.threshold}" for mutant in chosen))
        return 0
    stale = [mutant for mutant in chosen if not applies(mutant)]
    if stale:
        print("\n".join(f"DOES NOT APPLY {mutant.name}: {mutant.file}" for mutant in stale))
        return 1
    with tempfile.TemporaryDirectory() as folder:
        caught = _run(chosen, Copies(Path(folder), options.jobs), options.jobs)
    if caught is None:
        return 1
    print(f"{sum(map(bool, caught.values()))} of {len(chosen)} mutants caught")
    if options.page:
        options.page.write_text(page(caught), encoding="utf-8")
    return int(not all(caught.values()))


def _is_chosen(mutant: Mutant, texts: Sequence[str] | None) -> bool:
    names = mutant.name, mutant.threshold
    return not texts or any(text in name for text in texts for name in names)


def applies(mutant: Mutant) -> bool:
    """Whether a mutant's file has its text once."""
    try:
        mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return False
    return True


def _run(chosen: Sequence[Mutant], copies: Copies, jobs: int) -> dict[Mutant, str] | None:
    """What caught each mutant; None if tests fail without one."""
    selections = list(dict.fromkeys(mutant.tests for mutant in chosen))
    caught: dict[Mutant, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        plain = _counted(pool.map(copies.without_mutant, selections), len(selections))
        failing = [
            (tests, reason) for tests, reason in zip(selections, plain, strict=True) if reason
        ]
        for tests, failed in failing:
            print(f"the tests fail without a mutant: {' '.join(tests)}: {failed}")
        if failing:
            return None
        results = _counted(pool.map(copies.with_mutant, chosen), len(chosen))
        for mutant, failed in zip(chosen, results, strict=True):
            caught[mutant] = failed
            how = f"caught    {mutant.name}: {failed}" if failed else f"SURVIVED  {mutant.name}"
            print(how, flush=True)
    return caught


def _counted(results: Iterator[str], count: int) -> Iterator[str]:
    """Results as they come, with progress on stderr."""
    for number, result in enumerate(results, 1):
        print(f"  {number} of {count}", end="\r", file=sys.stderr, flush=True)
        yield result


def page(caught: Mapping[Mutant, str]) -> str:
    """The table of mutants as Markdown."""
    head = ["mutant", "kind", "threshold", "caught by"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for mutant, by in caught.items():
        cells = mutant.name, mutant.kind, mutant.threshold, by.replace("|", "\\|") or "SURVIVED"
        rows.append(f"| {' | '.join(cells)} |")
    share = f"{sum(map(bool, caught.values()))} of {len(caught)} mutants are caught."
    lines = [
        TITLE,
        "",
        "`python -m tools.verify.size_mutants`; see its help.",
        "",
        share,
        "",
        *rows,
    ]
    lines += ["", "Thresholds without a mutant:", ""]
    lines += [f"- {name}: {reason}" for name, reason in WITHOUT.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
