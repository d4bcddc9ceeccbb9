"""Serving: requests per second of one and two threads, ours vs. 1.8.5's predictor.

Each answers the same requests with the same saved model in a separate process, in alternating
rounds. The reference has a clone of its predictor for each thread, fed without copies as it
advises; ours is used in the same way, and by one `fluid.create_predictor` that threads share. The
best of many short rounds is reported for each, since other load only adds time. Each thread has one
BLAS thread. The GIL is held except in matrix products, in the reference during a whole run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.support.table import Row, table
from bench.workers.peers import Peer, started
from bench.workers.serve import BURST, LOD
from tests.support.nets import timed

ROOT = Path(__file__).resolve().parents[1]

THREADS = (1, 2)
ROUNDS = 25
ROUND_MS = 40.0
"""Milliseconds of a round, for the first runner."""

PAUSE = 0.05
"""Seconds between rounds."""

MODELS = ("digits_mlp", "lenet_bn", "resnet_cifar8", "sentiment_conv", "transformer_encoder")

COLUMNS = {"model": "", "batch": "d", "threads": "d", "shared": ",.0f", "clones": ",.0f"}
COLUMNS |= {"1.8.5": ",.0f", "ours ÷ 1.8.5": ".2f", "ms": ".3f", "1.8.5 ms": ".3f"}


@dataclass(frozen=True)
class Runner:
    """A column of the table: its process and mode."""

    name: str
    peer: Peer
    way: str


def measure(
    names: Sequence[str], batch: int, threads: Sequence[int], reference: str | None, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each model and number of threads: requests a second, ratios, milliseconds."""
    with ExitStack() as stack, TemporaryDirectory() as folder:
        runners = list(_runners(stack, reference))
        for name in names:
            model = save(name, batch, Path(folder, name))
            for count in threads:
                row = {"model": name, "batch": batch, "threads": count}
                yield {**row, **_race(runners, str(model), count, rounds)}


def _runners(stack: ExitStack, reference: str | None) -> Iterator[Runner]:
    """Ours first, then the reference if there is one."""
    script = str(ROOT / "bench/workers/serve.py")
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    one = dict.fromkeys(names, "1")
    ours = [sys.executable, script, "--fluid", "fluid"]
    peer = stack.enter_context(started(ours, {**one, "PYTHONPATH": str(ROOT)}))
    yield Runner("shared", peer, "shared")
    yield Runner("clones", peer, "clones")
    if reference:
        theirs = stack.enter_context(started([reference, script], {**one, "PYTHONPATH": ""}))
        yield Runner("1.8.5", theirs, "clones")


def save(name: str, batch: int, folder: Path) -> Path:
    """Write a model with its initial weights and a request for it; return their folder."""
    recorded = timed.model(fluid, name)
    executor, scope = fluid.Executor(), fluid.Scope()
    needed = {op for block in recorded.test._prune([recorded.output]).blocks for op in block.ops}
    read = {var for op in needed for var in op.reads()}
    drawn = timed.draw(name, np.random.RandomState(0), batch)
    feed = {key: value for key, value in drawn.items() if key in read}
    with fluid.scope_guard(scope):
        executor.run(recorded.startup)
        fluid.io.save_inference_model(
            folder, list(feed), [recorded.output], executor, recorded.test, params_filename="params"
        )
    np.savez(folder / "feed.npz", **_arrays(feed))
    return folder


def _arrays(feed: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, with LoD offsets next to theirs."""
    arrays = {name: value[0] if isinstance(value, tuple) else value for name, value in feed.items()}
    cut = {name: value[1] for name, value in feed.items() if isinstance(value, tuple)}
    return arrays | {name + LOD: np.cumsum([0, *lengths]) for name, lengths in cut.items()}


def _race(runners: Sequence[Runner], model: str, threads: int, rounds: int) -> dict[str, Any]:
    """Requests per second, the best of alternating rounds, and ours ÷ theirs."""
    modes = {runner.name: f"{runner.way}{threads}" for runner in runners}
    steps = {runner.name: _steps(runner.peer, model, modes[runner.name]) for runner in runners}
    speeds: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for _ in range(rounds):
        for contender in runners:
            time.sleep(PAUSE)
            spent = contender.peer.ask(model, modes[contender.name], steps[contender.name])
            speeds[contender.name].append(BURST * threads / spent * 1e3)
    results: dict[str, Any] = {name: max(speed) for name, speed in speeds.items()}
    results["ms"] = 1e3 * threads / results["shared"]
    if "1.8.5" in speeds:
        results["ours ÷ 1.8.5"] = results["shared"] / results["1.8.5"]
        results["1.8.5 ms"] = 1e3 * threads / results["1.8.5"]
    return results


def _steps(peer: Peer, model: str, mode: str) -> int:
    """The number of bursts that fill a round; also warms up."""
    peer.ask(model, mode, 2)
    return max(1, round(ROUND_MS / peer.ask(model, mode, 2)))


def report(rows: Sequence[Row]) -> str:
    """The table, and what is missing in it."""
    shown = [table("Requests a second, and milliseconds a request", rows, COLUMNS)]
    if not any("1.8.5" in row for row in rows):
        shown.append(
            "  the reference is skipped: give --reference PYTHON or FLUID_REFERENCE_PYTHON"
        )
    return "\n".join(shown)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=timed.MODELS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    options = parser.parse_args()
    rows = measure(
        options.models, options.batch, options.threads, options.reference, options.rounds
    )
    print(report(list(rows)))


if __name__ == "__main__":
    main()
