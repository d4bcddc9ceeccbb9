"""`fluid selftest`: runs families of cases within the time and prints one line for each."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import field

from compiler.codegen.native.host import supported
from compiler.support.dataclass import dataclass
from compiler.support.settings.setting import exported
from compiler.support.thresholds import all_thresholds
from fluid.cli.commands.interrupts import INTERRUPTED
from fluid.cli.model import CommandError
from fluid.cli.terminal import progress_line
from fluid.running.targets import default_target
from fluid.selftest.cases import Case
from fluid.selftest.families import FAMILIES
from fluid.selftest.gpu import compared_on_gpu
from fluid.selftest.more_families import MORE_FAMILIES
from fluid.selftest.trial import Outcome, TrialSetting, run_case
from runtime.native.threads import available

ALL: dict[str, Sequence[Case]] = {**FAMILIES, **MORE_FAMILIES}
"""The cases of every family."""
QUICK = 10.0
"""Seconds of `--quick`."""


@dataclass
class FamilyResult:
    """The results of a family: its cases that ran, of `total`, and the failures."""

    family: str
    total: int = 0
    ran: int = 0
    error: float = 0.0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list[str])

    def add(self, outcome: Outcome, where: str, repeat: str) -> None:
        """Count a trial of a case; errors say where it ran and what repeats it."""
        self.ran += 1
        self.error = max(self.error, outcome.error)
        if outcome.failure:
            self.failures.append(f"{where}\n    {outcome.failure}\n    repeat: {repeat}")

    def __str__(self) -> str:
        cases = (
            f"{self.ran} of {self.total} cases" if self.ran < self.total else f"{self.ran} cases"
        )
        verdict = "FAILED" if self.failures else "ok"
        times = f"{self.error:8.1e}  {self.seconds:6.1f} s"
        return f"{self.family:14}{cases:>18}  {times}  {verdict}"


def selftest(given: argparse.Namespace) -> int:
    """Run the selftest; exit code 1 if a case fails, 130 if it was interrupted."""
    lines: list[FamilyResult] = []
    reached: set[str] = set()
    try:
        with exported({"FLUID_CACHE_SIZE": "0"}):  # compiled here, and nothing is written
            _expect_choices(given)
            _run_families(given, lines, reached)
            lines += [] if given.family else _gpu_lines()
    except KeyboardInterrupt:
        progress_line("")
        print(f"stopped after {_counts(lines)}", file=sys.stderr)
        return INTERRUPTED
    print(f"\n{_counts(lines)}{_thresholds(reached)}")
    return int(any(line.failures for line in lines))


def _gpu_lines() -> list[FamilyResult]:
    """The line of the GPU's kernels; none, said so, without a GPU."""
    cases = [some[0] for some in ALL.values() if not some[0].lod]
    results = compared_on_gpu(cases)
    if not results:
        print("no GPU was found: Triton kernels were not tested")
        return []
    line = FamilyResult("triton", len(cases))
    for outcome in results:
        line.add(outcome, "on the GPU", "fluid selftest")
    _print_line(line)
    return [line]


def _print_line(line: FamilyResult) -> None:
    progress_line("")
    print(line, flush=True)
    for failure in line.failures:
        print(f"  {failure}", flush=True)


def _expect_choices(given: argparse.Namespace) -> None:
    """Raise CommandError for an unknown family, case or level, and without native code."""
    if default_target() != "native":
        raise CommandError("this machine has no native code: programs run in NumPy, see native.md")
    if given.cpu and given.cpu not in supported():
        raise CommandError(f"--cpu is {given.cpu!r}, this CPU runs: {', '.join(supported())}")
    cases = ALL[given.family] if given.family else [case for some in ALL.values() for case in some]
    if given.case and given.case not in {case.name for case in cases}:
        names = ", ".join(case.name for case in cases)
        raise CommandError(f"there is no case {given.case!r}; there are: {names}")


def _run_families(given: argparse.Namespace, lines: list[FamilyResult], reached: set[str]) -> None:
    """Run each family for its share of the time, and print its line."""
    levels = ", ".join([given.cpu] if given.cpu else supported())
    print(f"native code for {levels}, with {_threads_text(given)}")
    names = [given.family] if given.family else list(ALL)
    stop = time.monotonic() + (QUICK if given.quick else given.seconds)
    for number, name in enumerate(names):
        share = max(0.0, stop - time.monotonic()) / (len(names) - number)
        lines.append(FamilyResult(name))
        _run_family(given, lines[-1], share, reached)
        _print_line(lines[-1])


def _run_family(
    given: argparse.Namespace, line: FamilyResult, share: float, reached: set[str]
) -> None:
    begun = time.monotonic()
    cases = [case for case in ALL[line.family] if given.case in ("", case.name)]
    jobs = [(case, some) for some in _settings(given) for case in cases]
    line.total = sum(len(some) for _, some in jobs)
    for case, settings in jobs:
        line.seconds = time.monotonic() - begun
        if line.ran and line.seconds > share:
            return
        progress_line(f"{line.family}: {case.name}, {settings[0]}; {line.ran} of {line.total}")
        for setting, outcome in zip(settings, run_case(case, settings), strict=True):
            reached |= outcome.thresholds
            sizes = " and ".join(str(list(shape)) for shape in case.shapes(setting.is_large))
            where = f"{case.name} of {sizes}, {setting}"
            line.add(outcome, where, _repeat(line.family, case, setting))
    line.seconds = time.monotonic() - begun


def _settings(given: argparse.Namespace) -> Iterator[list[TrialSetting]]:
    """Settings that differ in threads only: the widest and the narrowest vectors come first."""
    sizes = {"": (False, True), "small": (False,), "large": (True,)}[given.sizes]
    levels = [given.cpu] if given.cpu else list(supported())
    ends, others = dict.fromkeys((levels[0], levels[-1])), levels[1:-1]
    for machines in (ends, others):
        for is_large in sizes:
            for machine in machines:
                yield [TrialSetting(machine, threads, is_large) for threads in _threads(given)]


def _threads(given: argparse.Namespace) -> list[int]:
    return [given.threads] if given.threads else sorted({1, available()})


def _threads_text(given: argparse.Namespace) -> str:
    numbers = _threads(given)
    return f"{' and '.join(map(str, numbers))} thread{'s' * (numbers[-1] > 1)}"


def _repeat(family: str, case: Case, setting: TrialSetting) -> str:
    """The command that runs one trial again."""
    sizes = "large" if setting.is_large else "small"
    return (
        f"fluid selftest --family {family} --case {shlex.quote(case.name)} --cpu {setting.machine} "
        f"--threads {setting.threads} --sizes {sizes}"
    )


def _counts(lines: Sequence[FamilyResult]) -> str:
    failed = sum(len(line.failures) for line in lines)
    ran, seconds = sum(line.ran for line in lines), sum(line.seconds for line in lines)
    families = f"{len(lines)} famil{'y' if len(lines) == 1 else 'ies'}"
    return f"{ran} cases of {families} in {seconds:.0f} s, {failed or 'none'} failed"


def _thresholds(reached: set[str]) -> str:
    every = all_thresholds()
    return f"; {len(reached & every.keys())} of {len(every)} thresholds of sizes were compared with"
