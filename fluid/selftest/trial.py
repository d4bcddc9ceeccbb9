"""One case of the selftest on one level of the CPU, by one thread or all.

Each native step is compared with the reference as it runs (`compiler.debugging.step_checks`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field

import numpy as np

import compiler
import runtime
from compiler.codegen.module import Module
from compiler.codegen.native.machine import MACHINES
from compiler.codegen.native.target import NativeTarget
from compiler.debugging.step_checks import StepChecks
from compiler.options import Options
from compiler.support.dataclass import dataclass
from compiler.support.settings.setting import exported
from compiler.support.thresholds import all_thresholds, lowered, observed
from fluid.selftest.cases import Case, Recorded, record

STEPS = 2
"""How often a case runs: its second step must not depend on the first."""
ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors that are findings of a trial: all but those that stop a process."""


@dataclass(frozen=True)
class TrialSetting:
    """Where a case runs: the level of the CPU, threads, and if sizes are large.

    Small sizes run with all thresholds lowered, so that they take the paths of large ones.
    """

    machine: str
    threads: int
    is_large: bool

    def __str__(self) -> str:
        sizes = "large sizes" if self.is_large else "small sizes with lowered thresholds"
        return f"{self.machine}, {self.threads} thread{'s' * (self.threads > 1)}, {sizes}"


@dataclass
class Outcome:
    """What a trial compared: steps, the largest relative error, and the error if it failed."""

    steps: int = 0
    error: float = 0.0
    failure: str = ""
    thresholds: set[str] = field(default_factory=set[str])


def run_case(case: Case, settings: list[TrialSetting]) -> list[Outcome]:
    """Compile a case once for settings that differ only in threads, and run it in each."""
    recorded = record(case, settings[0].is_large)
    outcome = Outcome()
    try:
        with _lowered(settings[0]), observed() as names:
            module = _compiled(recorded, settings[0].machine)
        outcome.thresholds |= names
    except ERRORS as error:
        outcome.failure = _described(error)
        return [outcome] * len(settings)
    return [_run(recorded, module, setting.threads, set(names)) for setting in settings]


def _run(recorded: Recorded, module: Module, threads: int, names: set[str]) -> Outcome:
    checks = StepChecks("selftest", log=lambda text: None)
    outcome = Outcome(thresholds=names)
    try:
        with exported({"CPU_NUM": str(threads)}):
            params = _initialised(recorded)
            step = runtime.load(module, params=params, names={"step_checks": checks})
            for _ in range(STEPS):
                step(recorded.feeds)
    except ERRORS as error:
        outcome.failure = _described(error)
    outcome.steps, outcome.error = len(checks.steps), checks.largest[0]
    return outcome


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _compiled(recorded: Recorded, machine: str) -> Module:
    target = NativeTarget(MACHINES[machine], compares=True)
    return compiler.compile(
        recorded.main, feed=list(recorded.feeds), fetch=list(recorded.fetches),
        target=target, options=Options(),
    )  # fmt: skip


def _initialised(recorded: Recorded) -> dict[str, np.ndarray]:
    """The persistable state that the startup program creates."""
    params: dict[str, np.ndarray] = {}
    if recorded.startup.global_block().ops:
        module = compiler.compile(recorded.startup, options=Options())
        runtime.load(module, params=params)({})
    return params


@contextmanager
def _lowered(setting: TrialSetting) -> Generator[None]:
    small = (
        {}
        if setting.is_large
        else {n: threshold.small for n, threshold in all_thresholds().items()}
    )
    with lowered(small):
        yield
