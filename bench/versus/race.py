"""Times of a row: ours and its peers in alternating rounds, and ratios of them.

With one thread a time is the CPU time of the thread that runs (`time.thread_time`), so that other
load hardly counts, and the ratio is the median of the rounds' ratios. With more it is wall time,
and the ratio that of the 10 % quantiles of all runs: other load only adds time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.versus.rows import Row
from bench.versus.runners import Missing, Runners
from bench.versus.saved import DIFFERENCE, moved

ROUND_MS = 20.0
"""Milliseconds of runs in a round."""

PAUSE = 0.25
"""Seconds between rounds with several threads: those of OpenMP spin for 0.2 when idle."""

FEWEST, MOST = 5, 60
"""Rounds of a row."""

OTHERS = 1.2
"""CPU time of the process ÷ that of the thread, above which other threads took part."""


@dataclass
class Times:
    """What a runner took: milliseconds of CPU per round, and of wall time per run."""

    thread: list[float] = field(default_factory=list)
    process: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)

    def add(self, reply: Mapping[str, Any]) -> None:
        """Add a round."""
        self.thread.append(reply["thread"])
        self.process.append(reply["process"])
        self.walls += reply["walls"]

    def typical(self, threads: int) -> float:
        """Milliseconds of a run, as they are compared."""
        if threads == 1:
            return median(self.thread)
        return float(np.quantile(self.walls, 0.1))


def ratio(ours: Times, theirs: Times, threads: int) -> float:
    """Ours ÷ theirs.

    >>> ratio(Times([1, 2, 9]), Times([2, 4, 3]), threads=1)
    0.5
    >>> ratio(Times(walls=[2.0]), Times(walls=[1.0]), threads=2)
    2.0
    """
    if threads == 1:
        return median(a / b for a, b in zip(ours.thread, theirs.thread, strict=True))
    return ours.typical(threads) / theirs.typical(threads)


def measure(
    runners: Runners, row: Row, model: str, seconds: float, absent: Mapping[str, str]
) -> dict[str, Any]:
    """The columns of a row: milliseconds by runner, ratios, differences, and who could not run.

    `absent` are runners that are known to be unable, with reasons. Raises Missing if ours cannot.
    """
    saved, notes = row.case is not None, dict(absent)
    counts = {"ours": _runs(runners, "ours", saved, model)}
    for name in row.peers:
        try:
            if name not in notes:
                counts[name] = _runs(runners, name, saved, model)
        except Missing as error:
            notes[name] = str(error)
    differences = _differences(row, model, counts) if saved else {}
    times = _rounds(runners, counts, saved, model, seconds)
    runners.drop()
    if runners.threads == 1:
        notes |= _helped(times)
    return {**_columns(row, times, runners.threads), **differences, "notes": notes}


def _runs(runners: Runners, name: str, saved: bool, model: str) -> int:
    """How many runs fill a round; also warms up."""
    (wall,) = runners.ask(name, saved, model, 1, warm=1)["walls"]
    if wall > ROUND_MS:
        return 1
    return max(1, round(ROUND_MS / min(runners.ask(name, saved, model, 3)["walls"])))


def _rounds(
    runners: Runners, counts: Mapping[str, int], saved: bool, model: str, seconds: float
) -> dict[str, Times]:
    """Alternating rounds for some seconds."""
    times = {name: Times() for name in counts}
    begun = time.monotonic()
    for turn in range(MOST):
        if turn >= FEWEST and time.monotonic() - begun > seconds:
            break
        for name, count in counts.items():
            if runners.threads > 1 and len(counts) > 1:
                time.sleep(PAUSE)
            warm = 0 if count < 3 else 1
            times[name].add(runners.ask(name, saved, model, count, warm))
    return times


def _columns(row: Row, times: Mapping[str, Times], threads: int) -> dict[str, Any]:
    peers = [name for name in times if name != "ours"]
    ratios = {name: ratio(times["ours"], times[name], threads) for name in peers}
    judged = [max(ratios, key=lambda name: ratios[name])] if row.best and ratios else peers
    return {
        "ms": {name: run_times.typical(threads) for name, run_times in times.items()},
        "rounds": len(times["ours"].thread),
        "load": round(os.getloadavg()[0], 1),
        "ratios": ratios,
        "goals": {name: row.peers[name][threads] for name in judged if threads in row.peers[name]},
    }


def _differences(row: Row, model: str, names: Iterable[str]) -> dict[str, Any]:
    """How far our outputs are from the peers', and whether they agree: else times say nothing."""
    differences = {
        name: moved(Path(model), "fluid", name, row.scored) for name in names if name != "ours"
    }
    return {
        "differences": differences,
        "agrees": all(difference <= DIFFERENCE for difference in differences.values()),
    }


def _helped(times: Mapping[str, Times]) -> dict[str, str]:
    """Runners with one thread whose process took more CPU time than the thread that runs."""
    shares = {
        name: median(
            a / max(b, 1e-6) for a, b in zip(run_times.process, run_times.thread, strict=True)
        )
        for name, run_times in times.items()
    }
    return {
        f"{name}, other threads": f"CPU time of the process ÷ of the thread is {share:.2f}"
        for name, share in shares.items()
        if share > OTHERS
    }
