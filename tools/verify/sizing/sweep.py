"""Runs cases in child processes, so that a crash or a hang loses one of them."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.verify.sizing.judge import differences
from tools.verify.sizing.problem import Case, Refused, Slow
from tools.verify.sizing.targets import DifferentBits, OnHost, Runner, Way
from tools.verify.support.children import Limits, call_in_children

RIGHT, FAILED = "right", ("wrong", "raised", "crash", "hang")
NOT_RUN = ("refused", "on the host", "slow")
"""States of cases that tell nothing: the reference refuses or takes too long, no kernels."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: its state, what is wrong if it failed, and how long it took."""

    name: str
    state: str
    text: str = ""
    seconds: float = 0.0


def outcome(case: Case, way: Way, threads: Sequence[int]) -> Outcome:
    """Run a case in this process."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state, text = _state(case, way, threads)
    return Outcome(case.name, state, text, round(time.perf_counter() - start, 3))


def _state(case: Case, way: Way, threads: Sequence[int]) -> tuple[str, str]:
    try:
        lines = list(differences(case.make, Runner(way, threads)))
    except Refused as error:
        return "refused", str(error)
    except OnHost as error:
        return "on the host", str(error)
    except (Slow, MemoryError) as error:
        return "slow", f"{type(error).__name__}: {error}"
    except DifferentBits as error:
        return "wrong", str(error)
    except Exception as error:  # noqa: BLE001  what a target raises is what is looked for
        return "raised", described(error)
    return ("wrong", "; ".join(lines)) if lines else (RIGHT, "")


def described(error: Exception) -> str:
    """An exception in one line, with the file and line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" [{Path(frames[-1].filename).name}:{frames[-1].lineno}]" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def lost(case: Case, why: str) -> Outcome:
    """The outcome of a case whose process died or was too slow: `crash: …` or `hang: …`."""
    state, _, text = why.partition(": ")
    return Outcome(case.name, state, text)


def run_cases(
    cases: Sequence[Case],
    run: Callable[[Case], Outcome],
    limits: Limits,
    report: Callable[[Outcome], None],
    workers: int = 2,
) -> list[Outcome]:
    """Run cases in child processes; returns the outcomes of those that there was time for."""
    outcomes = call_in_children(
        lambda index: run(cases[index]),
        len(cases),
        limits,
        lambda index, why: lost(cases[index], why),
        workers,
        lambda _, result: report(result),
    )
    return [result for result in outcomes if result is not None]


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """The number of outcomes by state: right, failed, not run."""
    states = Counter(result.state for result in outcomes)
    return {state: states[state] for state in (RIGHT, *FAILED, *NOT_RUN)}


def failures(outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """The outcomes that are failures."""
    return (result for result in outcomes if result.state in FAILED)
