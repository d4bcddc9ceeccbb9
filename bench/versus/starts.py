"""Compile times, starts and peak memory, each in a process of its own.

A compile time is that of a first run less a later one, the median of several processes; reading the
model, or recording it, has a column of its own. Kernels are compiled by as many threads as may run.
Cold means that the cache on disk is empty, warm that it was just filled. The bytecode of Python
modules is there in both cases, as after an installation: a run before, with another cache, is not
counted.

A start is a whole command: Python, the imports, the model, the first run. Ours and ONNX Runtime's
alternate, and each has its seconds and those of the CPU (user and system, all threads), whose ratio
other processes of the machine change less.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import numpy as np

from bench.support.table import Row, goal, table
from bench.versus.runners import ROOT
from bench.versus.saved import zoo_case

GOALS = {"resnet50": 1.0, "mobilenet_v2": 0.6, "lenet": 0.2}
"""Seconds of a cold compilation: two nets for inference, one in training."""

WARM = 0.1
"""Seconds of a warm one."""

ROUNDS = 5
WORKER = str(ROOT / "bench" / "workers" / "starts.py")

COLUMNS = {"model": "", "read s": ".2f", "cold s": ".2f", "goal": ".1f", "warm s": ".2f"}
COLUMNS |= {"compilations": "d"}
STARTED = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2"}
"""Cases of `measure` whose commands are started, and their titles."""
START_GOALS = {"cold cache": 1.5, "layers cached": 1.5, "warm cache": 1.0, "peak memory, MB": 1.0}
START_COLUMNS = {"model": "", "start": "", "ours": ".2f", "onnxruntime": ".2f"}
START_COLUMNS |= {"ours ÷ its": ".2f", "CPU ÷ its": ".2f", "cached MB": ".0f"}


def measure(folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A row of compile times for each model; cases are written to the folder."""
    environment = with_bytecode(folder, environment)
    for name, limit in GOALS.items():
        asked = ("steps", name)
        if name != "lenet":
            zoo_case(folder / name, name, batch=1, image=224, classes=1000)
            asked = ("fluid", str(folder / name))
        _measured(asked, {**environment, "FLUID_CACHE": str(folder / f"before-{name}")})
        cache = folder / f"cache-{name}"
        cached = {**environment, "FLUID_CACHE": str(cache)}
        cold = [_measured(asked, cached, empties=cache) for _ in range(ROUNDS)]
        warm = [_measured(asked, cached) for _ in range(ROUNDS)]
        yield {
            "model": name,
            "read s": median(row["load"] for row in warm),
            "cold s": median(row["first"] - row["next"] for row in cold),
            "goal": limit,
            "warm s": median(row["first"] - row["next"] for row in warm),
            "compilations": max(row["compilations"] for row in cold),
        }


def with_bytecode(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for processes that share Python's bytecode, even where writing it is disabled."""
    place = str(folder / "bytecode")
    return {**environment, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": place}


def _measured(
    asked: Sequence[str], environment: Mapping[str, str], empties: Path | None = None
) -> dict[str, Any]:
    """Measurements of a fresh process of `workers/starts.py`, and its seconds as `wall`.

    The folder that it `empties` is removed before: files that are removed are not written to the
    disk, which would delay the next process.
    """
    if empties is not None:
        rmtree(empties, ignore_errors=True)
    _, out = _run([WORKER, *asked], environment)
    return dict(json.loads(out.splitlines()[-1]))


@dataclass(frozen=True)
class Spent:
    """Seconds of a process: those of a clock, and those of all its threads on CPUs."""

    wall: float
    cpu: float


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Spent, str]:
    """Seconds and output of a Python; RuntimeError with the end of its error output."""
    start, before = time.perf_counter(), _children_seconds()
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    spent = Spent(time.perf_counter() - start, _children_seconds() - before)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return spent, done.stdout


def _children_seconds() -> float:
    """Seconds of the CPU that processes which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_starts(
    folder: Path, environment: Mapping[str, str], rounds: int = ROUNDS
) -> Iterator[dict[str, Any]]:
    """Rows of whole commands in alternation, and the most memory that a process held.

    The cases are those of `measure`. ONNX Runtime's command imports it, makes a session, runs once.
    With cached layers, another model of equal layers was there before: new weights, for example.
    """
    environment = with_bytecode(folder, environment)
    for name, title in STARTED.items():
        case, cache = folder / name, folder / f"infer-{name}"
        infer, peer = _infer(case), [WORKER, "onnxruntime", str(case), "once"]
        _run(infer, {**environment, "FLUID_CACHE": str(folder / "infer-before")})
        _run(peer, environment)
        emptied = {"cold cache": cache, "layers cached": cache / "modules", "warm cache": None}
        for start, place in emptied.items():
            pairs: list[tuple[Spent, Spent]] = []
            for _ in range(rounds):
                if place is not None:
                    rmtree(place, ignore_errors=True)
                ours = _run(infer, {**environment, "FLUID_CACHE": str(cache)})[0]
                pairs.append((ours, _run(peer, environment)[0]))
            walls = [(mine.wall, its.wall) for mine, its in pairs]
            row = {"model": title, "start": start, **_pair(walls)}
            row["CPU ÷ its"] = median(mine.cpu / its.cpu for mine, its in pairs)
            row["cached MB"] = _cached_bytes(cache) / 1e6
            yield row
        cached = {**environment, "FLUID_CACHE": str(folder / f"cache-{name}")}
        mine = _measured(("fluid", str(case)), cached)["peak"] / 1e6
        its = _measured(("onnxruntime", str(case)), environment)["peak"] / 1e6
        yield {"model": title, "start": "peak memory, MB", **_pair([(mine, its)])}


def _infer(case: Path) -> list[str]:
    """The arguments of `fluid infer` for the model and the feed of a case."""
    with np.load(case / "feed.npz") as arrays:
        np.savez(case / "infer.npz", img=arrays["in.img"])
    infer = ["-m", "fluid", "infer", str(case / "model"), "--params-filename", "params"]
    return [*infer, "--input", str(case / "infer.npz"), "--show", "1"]


def _cached_bytes(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())


def _pair(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    ours, theirs = (median(numbers) for numbers in zip(*pairs, strict=True))
    ratio = median(mine / its for mine, its in pairs)
    return {"ours": ours, "onnxruntime": theirs, "ours ÷ its": ratio}


def report(compiled: Sequence[Row], starts: Sequence[Row]) -> str:
    """Both tables and the goals."""
    lines = [table("Compile times; compilations for twice the batch", compiled, COLUMNS)]
    for row in compiled:
        spent, limit = row["cold s"], row["goal"]
        lines.append(goal(f"{row['model']}, cold: {spent:.2f} s", spent <= limit, f"≤ {limit} s"))
        spent = row["warm s"]
        lines.append(goal(f"{row['model']}, warm: {spent:.2f} s", spent <= WARM, f"≤ {WARM} s"))
    again = sum(row["compilations"] for row in compiled)
    lines.append(goal(f"{again} compilations for other batches", not again, "0"))
    if starts:
        lines.append(table("Starts and memory", starts, START_COLUMNS))
    for row in starts:
        spent, limit = row["ours ÷ its"], START_GOALS[row["start"]]
        text = f"{row['model']}, {row['start']}: {spent:.2f}"
        lines.append(goal(text, spent <= limit, f"≤ {limit}"))
    return "\n".join(lines)
