"""Compile time: milliseconds of each stage and pass, and their growth with program length.

For the training program of `resnet_cifar8` and for synthetic ones of increasing length, the median
of several compilations from a recorded program to Python code. Growth is the exponent e of a fit
`milliseconds = c · opsᵉ`; that of n · log n over the same lengths is printed next to it. Recording
the program is the user's script, timed separately. `--peer` also times torch.compile, which is
slow.
"""

from __future__ import annotations

import argparse
import builtins
import gc
import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.support.table import Row, goal, table
from compiler import Options
from compiler.driver import TARGETS, feed_shapes
from compiler.freeze import freeze
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.observers import Timer
from compiler.passes.pipeline import pipeline
from compiler.support.gc_pause import gc_disabled
from tests.support.nets import timed

GOAL_MS = 1000.0
"""Maximum for all stages of resnet_cifar8's training program."""

NOISE = 0.05
"""Allowed excess of a fitted exponent over that of n · log n: times are never exact."""

LENGTHS = (1250, 2500, 5000, 10000)
REPEATS = 3

Times = dict[str, float]
"""Milliseconds by stage, in the order the stages run."""


@dataclass
class Clock:
    """Milliseconds of functions called through it, by name."""

    times: Times = field(default_factory=dict)

    def __call__(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        self.times[name] = (time.perf_counter() - start) * 1e3
        return result


def compile_once(
    program: Any, feed: Sequence[str], fetch: Sequence[str], target: str = "numpy"
) -> Times:
    """Compile as `compiler.compile` does, stage by stage, and then as Python does.

    LLVM, which compiles the kernels of the native target, is not included.
    """
    gc.collect()  # what the last compilation left behind is not this one's to clear away
    clock, timer = Clock(), Timer()
    assigned = None if target == "numpy" else TARGETS[target]
    with gc_disabled():
        graph = clock("to_graph", to_graph, program, feed_shapes(program, feed), fetch)
        clock("passes", run_passes, graph, pipeline(Options(), assigned), Context(), [timer])
        all_passes = clock.times.pop("passes")
        clock.times["verify"] = all_passes - sum(timer.milliseconds.values())
        clock.times |= timer.milliseconds
        plan = clock("freeze", freeze, graph)
        module = clock("emit", TARGETS[target].emit, plan)
    clock("python", builtins.compile, module.source, module.name, "exec")
    return clock.times


def measure_model(
    name: str = "resnet_cifar8", repeats: int = REPEATS, target: str = "numpy"
) -> dict[str, Any]:
    """A row for a model's training program."""
    start = time.perf_counter()
    recorded = timed.model(fluid, name)
    spent = (time.perf_counter() - start) * 1e3
    feed = list(timed.draw(name, np.random.RandomState(0), 1))
    return _row(name, recorded, feed, spent, repeats, target)


def measure_synthetic(
    lengths: Sequence[int] = LENGTHS, repeats: int = REPEATS, target: str = "numpy"
) -> Iterator[dict[str, Any]]:
    """A row for each length."""
    for length in lengths:
        start = time.perf_counter()
        recorded = timed.record(fluid, timed.synthetic(length), timed.sgd)
        spent = (time.perf_counter() - start) * 1e3
        yield _row("synthetic", recorded, ["x", "y"], spent, repeats, target)


def _row(
    name: str, recorded: timed.Recorded, feed: Sequence[str], spent: float, repeats: int,
    target: str,
) -> dict[str, Any]:  # fmt: skip
    fetch = [recorded.loss.name]
    runs = [compile_once(recorded.main, feed, fetch, target) for _ in range(repeats)]
    return {
        "program": name,
        "ops": len(recorded.main.global_block().ops),
        "recording": spent,
        "all": median(sum(run.values()) for run in runs),
        "stages": {stage: median(run[stage] for run in runs) for stage in runs[0]},
    }


# ---- growth -------------------------------------------------------------------------------------


def growth(sizes: Sequence[int], times: Sequence[float]) -> float:
    """The exponent e of the best fit `time = c · sizeᵉ`.

    >>> round(growth([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def exponents(rows: Sequence[Row]) -> dict[str, float]:
    """The exponent of each stage and of all together, and of n · log n, over synthetic programs."""
    sizes = [row["ops"] for row in rows]
    growths = {
        stage: growth(sizes, [row["stages"][stage] for row in rows]) for stage in rows[0]["stages"]
    }
    growths["all"] = growth(sizes, [row["all"] for row in rows])
    growths["n log n"] = growth(sizes, [size * math.log(size) for size in sizes])
    return growths


# ---- a peer -------------------------------------------------------------------------------------


def measure_peer(name: str = "resnet_cifar8") -> Iterator[dict[str, Any]]:
    """Milliseconds of torch.compile's first step, forward and backward, less its second.

    `aot_eager` traces and differentiates, as our passes do; `inductor` also generates C++.
    """
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    torch = importlib.import_module("torch")
    peer = importlib.import_module("bench.workers.torch_step")
    feed = timed.draw(name, np.random.RandomState(0), timed.BATCH[name])
    for backend in ("aot_eager", "inductor"):
        torch.compiler.reset()
        net = torch.compile(peer.network(name), backend=backend)
        first, second = (_spent(peer, net, feed) for _ in range(2))
        yield {"program": name, "backend": backend, "ms": first - second}


def _spent(peer: Any, net: Any, feed: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    peer.loss_of(net, feed).backward()
    return (time.perf_counter() - start) * 1e3


# ---- output -------------------------------------------------------------------------------------


def report(model: Row, synthetic: Sequence[Row], peers: Sequence[Row] = ()) -> str:
    """Milliseconds of every stage, per 1,000 ops for the synthetic programs, and the goals."""
    growths = exponents(synthetic)
    limit = growths["n log n"] + NOISE
    worst = max(model["stages"], key=lambda stage: growths[stage])
    name = model["program"]
    lines = [
        table(f"{name}, {model['ops']} ops, and synthetic programs", *_stages(model, synthetic)),
        f"  the worst stage is {worst}: ops^{growths[worst]:.2f}",
        goal(f"{model['all']:.0f} ms for {name}", model["all"] < GOAL_MS, f"< {GOAL_MS:.0f} ms"),
        goal(
            f"ops^{growths['all']:.2f} in all", growths["all"] <= limit, f"≤ {limit:.2f}, n log n"
        ),
    ]
    if peers:
        columns = {"program": "", "backend": "", "ms": ",.0f"}
        lines.append(table("torch.compile, forward and backward", peers, columns))
    return "\n".join(lines)


def _stages(model: Row, synthetic: Sequence[Row]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of stages: milliseconds of the model, then milliseconds per 1,000 ops by length."""
    growths = exponents(synthetic)
    columns = {"stage": "", "ms": ".1f"}
    columns |= {_per(row): ".1f" for row in synthetic} | {"growth": ".2f"}
    rows: list[dict[str, Any]] = []
    for stage in (*model["stages"], "all"):
        row: dict[str, Any] = {"stage": stage, "ms": _milliseconds(model, stage)}
        row |= {
            _per(program): _milliseconds(program, stage) / program["ops"] * 1e3
            for program in synthetic
        }
        rows.append({**row, "growth": growths[stage]})
    rows.append({"stage": "recording", "ms": model["recording"]})
    rows[-1] |= {
        _per(program): program["recording"] / program["ops"] * 1e3 for program in synthetic
    }
    return rows, columns


def _per(row: Row) -> str:
    return f"ms/1000 @{row['ops']}"


def _milliseconds(row: Row, stage: str) -> float:
    return row["all"] if stage == "all" else row["stages"][stage]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--target", choices=("numpy", "native"), default="numpy")
    parser.add_argument("--peer", action="store_true", help="also time torch.compile, slow")
    options = parser.parse_args()
    repeats, target = options.repeats, options.target
    model = measure_model(repeats=repeats, target=target)
    synthetic = list(measure_synthetic(options.lengths, repeats, target))
    print(report(model, synthetic, list(measure_peer()) if options.peer else []))


if __name__ == "__main__":
    main()
