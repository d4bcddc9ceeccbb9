"""Training steps: ours vs. the reference and torch, and the cost of a new batch size.

Each takes steps in a separate process, on the same batches, in alternating rounds, so that other
load affects all alike. The reference is Paddle 1.8.5 in a Python passed by `--reference` or
FLUID_REFERENCE_PYTHON, with a plain `run` and with `use_program_cache`; torch is eager. A time is
the median of rounds, a ratio the median of the rounds' ratios, noise our slowest round ÷ our
fastest: far above 1, the machine was busy.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.support.table import Row, goal, table
from bench.workers.peers import Peer, started
from tests.support.nets import timed

ROOT = Path(__file__).resolve().parents[1]

THREADS = (1, 2)
"""Numbers of threads for all. One is the reference's default, and more reliable if the machine is
not idle: threads that wait for each other lose the most when interrupted.
"""

ROUNDS = 9
ROUND_MS = 60.0
"""Milliseconds of steps in a round, for the first runner."""

PAUSE = 0.25
"""Seconds between rounds: OpenMP threads of the last one still spin for 0.2."""

GATED = (
    "fit_a_line", "digits_mlp", "word2vec", "ctr_wide_deep", "sentiment_conv",
    "transformer_encoder",
)  # fmt: skip
"""Models whose step must not be slower than the reference's with its cache."""

BINDING_MS = 5.0
"""Maximum cost of a new batch size in milliseconds."""

COLUMNS = {"model": "", "batch": "d", "threads": "d", "ours": ".3f", "reference": ".3f"}
COLUMNS |= {"cached": ".3f", "torch": ".3f", "ours ÷ cached": ".2f", "ours ÷ torch": ".2f"}
COLUMNS |= {"noise": ".2f"}
BINDING_COLUMNS = {"model": "", "sizes": "d", "compiles": "d", "bindings": "d", "binding ms": ".2f"}


@dataclass(frozen=True)
class Runner:
    """A column of the table: its process and mode."""

    name: str
    peer: Peer
    mode: str = "plain"


@dataclass(frozen=True)
class Whom:
    """The implementations compared with ours: a Python that has the reference, or None; torch or
    not.
    """

    reference: str | None = None
    torch: bool = True


def measure(
    names: Sequence[str], whom: Whom, threads: int, rounds: int = ROUNDS
) -> Iterator[dict[str, Any]]:
    """A row of milliseconds and ratios for each model."""
    with ExitStack() as stack:
        runners = list(_runners(stack, whom, _environment(threads)))
        for name in names:
            row = {"model": name, "batch": timed.BATCH[name], "threads": threads}
            yield {**row, **_race(runners, name, rounds)}


def _runners(stack: ExitStack, whom: Whom, threads: Mapping[str, str]) -> Iterator[Runner]:
    """Ours first, then the others that are available."""
    fluids, torch = (str(ROOT / f"bench/workers/{name}_step.py") for name in ("fluid", "torch"))
    ours, path = [sys.executable, fluids, "--fluid", "fluid"], {"PYTHONPATH": str(ROOT)}
    yield Runner("ours", stack.enter_context(started(ours, {**threads, **path})))
    if whom.reference:
        theirs = [whom.reference, fluids]
        peer = stack.enter_context(started(theirs, {**threads, "PYTHONPATH": ""}))
        yield Runner("reference", peer)
        yield Runner("cached", peer, "cached")
    if whom.torch:
        yield Runner("torch", stack.enter_context(started([sys.executable, torch], threads)))


def _environment(threads: int) -> dict[str, str]:
    """Variables that set the threads of OpenBLAS, OpenMP, MKL and the reference."""
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLAGS_paddle_num_threads"
    return dict.fromkeys(names, str(threads))


def _race(runners: Sequence[Runner], name: str, rounds: int) -> dict[str, float | None]:
    """Medians of alternating rounds, and the ratios of ours to others."""
    steps = {runner.name: _steps(runner, name) for runner in runners}
    times: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for _ in range(rounds):
        for runner in runners:
            time.sleep(PAUSE)
            times[runner.name].append(runner.peer.ask(name, runner.mode, steps[runner.name]))
    medians: dict[str, float | None] = {who: median(spent) for who, spent in times.items()}
    medians["ours ÷ cached"] = _ratio(times, "cached")
    medians["ours ÷ torch"] = _ratio(times, "torch")
    medians["noise"] = max(times["ours"]) / min(times["ours"])
    return medians


def _steps(runner: Runner, name: str) -> int:
    """The number of steps that fill a round; also warms up."""
    runner.peer.ask(name, runner.mode, 3)
    return max(3, round(ROUND_MS / runner.peer.ask(name, runner.mode, 3)))


def _ratio(times: Mapping[str, Sequence[float]], other: str) -> float | None:
    if other not in times:
        return None
    return median(a / b for a, b in zip(times["ours"], times[other], strict=True))


# ---- another batch size -------------------------------------------------------------------------


class Session:
    """A model in training, with its own scope."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.executor = fluid.Executor(fluid.CPUPlace())
        self._scope = fluid.Scope()
        self._recorded = timed.model(fluid, name)
        self.executor.run(self._recorded.startup, scope=self._scope)

    def milliseconds(self, batch: int) -> float:
        """Time of one step with a batch of this size."""
        feed = timed.fed(fluid, timed.draw(self.name, np.random.RandomState(0), batch))
        program, loss = self._recorded.main, self._recorded.loss
        start = time.perf_counter()
        self.executor.run(program, feed=feed, fetch_list=[loss], scope=self._scope)
        return (time.perf_counter() - start) * 1e3

    def binding(self, batch: int) -> float:
        """Additional milliseconds of the first step of a batch size."""
        first = self.milliseconds(batch)
        return first - min(self.milliseconds(batch) for _ in range(5))


def measure_binding(names: Sequence[str], sizes: int = 5) -> Iterator[dict[str, Any]]:
    """A row for each model: compilations and bindings while only the batch size changed.

    The new sizes are small, where a step takes little time that could hide the binding, and the
    minimum of the times is reported: other load only adds time.
    """
    for name in names:
        session = Session(name)
        session.milliseconds(timed.BATCH[name])
        counters = session.executor.counters
        compiles, bindings = counters.compiles, counters.bindings
        spent = [session.binding(batch) for batch in range(2, sizes + 2)]
        yield {
            "model": name,
            "sizes": sizes,
            "compiles": counters.compiles - compiles,
            "bindings": counters.bindings - bindings,
            "binding ms": min(spent),
        }


# ---- output -------------------------------------------------------------------------------------


def report(steps: Sequence[Row], bindings: Sequence[Row]) -> str:
    """Both tables and the goals."""
    compiled = sum(row["compiles"] for row in bindings)
    slowest = max(row["binding ms"] for row in bindings)
    return "\n".join([
        table("Training steps, ms", steps, COLUMNS),
        *_gates(steps),
        table("Only the batch size changes", bindings, BINDING_COLUMNS),
        goal(f"{compiled} programs compiled", compiled == 0, "0"),
        goal(f"binding takes {slowest:.2f} ms at most", slowest <= BINDING_MS, f"≤ {BINDING_MS}"),
    ])  # fmt: skip


def _gates(steps: Sequence[Row]) -> list[str]:
    if all(row["ours ÷ cached"] is None for row in steps):
        return ["  the reference is skipped: give --reference PYTHON or FLUID_REFERENCE_PYTHON"]
    rows = [row for row in steps if row["model"] in GATED]
    return [
        goal(f"{row['model']}, threads {row['threads']}: {ratio:.2f}", ratio <= 1.0, "≤ 1.0")
        for row in rows
        if (ratio := row["ours ÷ cached"]) is not None
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(timed.MODELS), choices=timed.MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    whom = Whom(options.reference, not options.no_torch)
    races = (measure(options.models, whom, threads, options.rounds) for threads in options.threads)
    print(report(list(chain.from_iterable(races)), list(measure_binding(options.models))))


if __name__ == "__main__":
    main()
