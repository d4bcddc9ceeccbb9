"""Compile times, starts and peak memory, each in a process of its own.

A compile time is that of a first run less a later one, the median of several processes; reading the
model, or recording it, has a column of its own. Kernels are compiled by as many threads as may run.
Cold means that the cache on disk is empty, warm that it was just filled. The bytecode of Python
modules is there in both cases, as after an installation: a run before, with another cache, is not
counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
START_COLUMNS = {"ResNet-50": "", "ours": ".2f", "onnxruntime": ".2f", "ours ÷ its": ".2f"}


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
    wall, out = _run([WORKER, *asked], environment)
    return {**json.loads(out.splitlines()[-1]), "wall": wall}


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float, str]:
    """Seconds and output of a Python; CalledProcessError with the end of its error output."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    spent = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return spent, done.stdout


def measure_starts(
    folder: Path, environment: Mapping[str, str], rounds: int = ROUNDS
) -> Iterator[dict[str, Any]]:
    """Rows of ResNet-50: whole commands in alternation, and the most memory a process held.

    The case is that of `measure`. ONNX Runtime's command imports it, makes a session and runs.
    """
    case = folder / "resnet50"
    with np.load(case / "feed.npz") as arrays:
        np.savez(folder / "feed.npz", img=arrays["in.img"])
    infer = ["-m", "fluid", "infer", str(case / "model"), "--params-filename", "params"]
    infer += ["--input", str(folder / "feed.npz"), "--show", "1"]
    asked = ("onnxruntime", str(case))
    environment = with_bytecode(folder, environment)
    _run(infer, {**environment, "FLUID_CACHE": str(folder / "infer-before")})
    _run([WORKER, *asked], environment)
    for kind in ("cold", "warm"):
        pairs: list[tuple[float, float]] = []
        for _ in range(rounds):
            if kind == "cold":
                rmtree(folder / "infer", ignore_errors=True)
            cache = {**environment, "FLUID_CACHE": str(folder / "infer")}
            pairs.append((_run(infer, cache)[0], _run([WORKER, *asked], environment)[0]))
        yield _pair(f"fluid infer, {kind} cache, s", pairs)
    cache = {**environment, "FLUID_CACHE": str(folder / "cache-resnet50")}
    peaks = _measured(("fluid", str(case)), cache)["peak"], _measured(asked, environment)["peak"]
    yield _pair("peak memory, MB", [(peaks[0] / 1e6, peaks[1] / 1e6)])


def _pair(title: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ours, theirs = (median(times) for times in zip(*pairs, strict=True))
    return {
        "ResNet-50": title,
        "ours": ours,
        "onnxruntime": theirs,
        "ours ÷ its": median(a / b for a, b in pairs),
    }


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
        spent = row["ours ÷ its"]
        lines.append(goal(f"{row['ResNet-50']}: {spent:.2f}", spent <= 1.0, "≤ 1.0"))
    return "\n".join(lines)
