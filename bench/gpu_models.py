"""Whole models on a GPU: our steps beside torch eager and torch.compile with CUDA graphs.

    python bench/gpu_models.py                       # every row
    python bench/gpu_models.py --only resnet50 --kernels 12
    python bench/gpu_models.py --compiled            # also torch.compile, which is slow to begin

A step copies its feed from the host, runs, and returns the output or the loss as a NumPy array, in
torch as well; the device is idle when the next one begins. Times are medians of alternating rounds,
by the host's clock. `launched ms` is a step without a CUDA graph, `own ms` one whose products are
kernels (`FLUID_LIBRARIES=0`), for training in bfloat16; `kernels ms` are the times that
kernels and copies take on the device, by torch's profiler; `first s` is compiling and the first
step. `--kernels N` lists the N kernels of a model that take the most time, and torch's.
`--names` prints the rows without a GPU; `account.py --steps` counts their launches and bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import fluid
from bench.device import models, torch_models
from bench.device.models import Case
from bench.kernels import write
from bench.support.table import Row, table
from bench.versus.saved import save
from fluid.cli.main import main as command
from tests.support.nets import timed

Step = Callable[[], Any]
COLUMNS = {
    "model": "", "work": "", "dtype": "", "batch": "d", "tokens": "d", "ms": ".2f",
    "launched ms": ".2f", "own ms": ".2f", "eager ms": ".2f", "compiled ms": ".2f",
    "ours ÷ own": ".2f", "ours ÷ eager": ".2f", "ours ÷ compiled": ".2f", "kernels ms": ".2f",
    "eager kernels ms": ".2f",
    "compiled kernels ms": ".2f", "launches": ".0f", "first s": ".1f",
}  # fmt: skip
_KERNELS = {
    "ours": "kernels ms", "eager": "eager kernels ms", "compiled": "compiled kernels ms",
}  # fmt: skip
"""The column of the time that kernels and copies take on the device."""


def predicts(case: Case, feed: Mapping[str, np.ndarray], folder: Path) -> Step:
    """A step of a package that `fluid compile` wrote for this GPU."""
    major, minor = torch.cuda.get_device_capability()
    net = models.network(case)
    saved = save(folder / "saved", net.main, net.startup, feed, [net.result]).folder / "model"
    os.environ["FLUID_DTYPE"] = case.dtype
    try:
        with redirect_stdout(StringIO()):
            code = command([
                "compile", str(saved), "--params-filename", "params", "--target",
                f"cuda:{major}{minor}", "-o", str(folder / "package"),
            ])  # fmt: skip
    finally:
        del os.environ["FLUID_DTYPE"]
    if code:
        raise RuntimeError(f"fluid compile ended with {code}")
    predictor = fluid.load_compiled(str(folder / "package"))
    return lambda: predictor.run(feed)[0]


def trains(case: Case, feed: Mapping[str, np.ndarray]) -> Step:
    """A training step of ours."""
    network = models.network(case)
    executor, scope = fluid.Executor(fluid.CUDAPlace(0)), fluid.Scope()
    executor.run(network.startup, scope=scope)
    inputs = timed.fed(fluid, feed)
    return lambda: executor.run(network.main, inputs, [network.result], scope=scope)[0]


def milliseconds(runs: Mapping[str, Step], seconds: float = 0.7) -> dict[str, float]:
    """The median time of a step of each, in alternating rounds."""
    for step in (*runs.values(), *runs.values()):
        step()
    times_by_name: dict[str, list[float]] = {name: [] for name in runs}
    stop = time.monotonic() + seconds * len(runs)
    while time.monotonic() < stop or len(times_by_name["ours"]) < 3:
        for name, step in runs.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times_by_name[name].append((time.perf_counter() - begun) * 1e3)
    return {name: median(samples) for name, samples in times_by_name.items()}


def kernels(step: Step, count: int = 5) -> list[tuple[str, float, float]]:
    """Name, launches and milliseconds a step of each kernel and copy, the longest first."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(count):
            step()
        torch.cuda.synchronize()
    times, launches = dict[str, float](), Counter[str]()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name] = times.get(event.name, 0.0) + event.device_time_total / 1e3 / count
            launches[event.name] += 1
    longest = sorted(times, key=lambda name: -times[name])
    return [(name, launches[name] / count, times[name]) for name in longest]


def measured(case: Case, compiled: bool, launched: bool, shown: int) -> Row:
    """The row of a case."""
    feed, begun = models.feed(case), time.monotonic()
    with TemporaryDirectory(prefix="models-") as folder:
        runs = {"ours": _ours(case, feed, Path(folder, "captured"), True)}
        runs["ours"]()
        first = time.monotonic() - begun
        if case.trains and case.dtype == "bf16":
            runs["own"] = _ours(case, feed, Path(folder, "own"), True, library=False)
            runs["own"]()
        if launched:
            runs["launched"] = _ours(case, feed, Path(folder, "launched"), False)
        peer = torch_models.trains if case.trains else torch_models.predicts
        runs["eager"] = peer(case.model, case.dtype, feed, False)
        if compiled:
            runs["compiled"] = peer(case.model, case.dtype, feed, True)
        ms = milliseconds(runs)
        profiles = {name: kernels(step) for name, step in runs.items() if name in _KERNELS}
    row: dict[str, Any] = {**vars(case), "ms": ms["ours"], "first s": first}
    row |= {f"{name} ms": median_ms for name, median_ms in ms.items() if name != "ours"}
    row |= {
        f"ours ÷ {name}": ms["ours"] / ms[name]
        for name in ("own", "eager", "compiled")
        if name in ms
    }
    for name, profile in profiles.items():
        row[_KERNELS[name]] = sum(spent for *_, spent in profile)
    shorter = {name: profile[: max(shown, 60)] for name, profile in profiles.items()}
    return row | {"launches": sum(count for _, count, _ in profiles["ours"]), "profiles": shorter}


def _ours(
    case: Case, feed: Mapping[str, np.ndarray], folder: Path, graph: bool, library: bool = True
) -> Step:
    """A step of ours, as a CUDA graph or as launches, with or without a library's products."""
    os.environ["FLUID_CUDA_GRAPH"] = str(int(graph))
    os.environ["FLUID_LIBRARIES"] = str(int(library))
    return trains(case, feed) if case.trains else predicts(case, feed, folder)


def listing(row: Row, shown: int) -> str:
    """The kernels of a row that take the most time, and those of each peer."""
    lines: list[str] = []
    for name, profile in row["profiles"].items():
        title = f"{row['model']} {row['work']} {row['dtype']}, batch {row['batch']}: {name}"
        lines.append(f"{title}, {row[_KERNELS[name]]:.3f} ms of kernels")
        for kernel, launches, ms in profile[:shown]:
            lines.append(f"  {ms:8.3f} ms  {launches:6.1f} ×  {kernel[:90]}")
    return "\n".join(lines)


def report(rows: Sequence[Row], device: str) -> str:
    """The table."""
    return table(f"Models on {device}", rows, COLUMNS)


def _chosen(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[Case]]:
    """The options, and the cases that they choose."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with a word")
    parser.add_argument("--compiled", action="store_true", help="also measure torch.compile")
    parser.add_argument("--launched", action="store_true", help="also without a CUDA graph")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list N of each model")
    parser.add_argument("--seconds", type=float, default=600, help="after which no case begins")
    parser.add_argument("--json", type=Path, help="write rows to this file after each")
    parser.add_argument("--names", action="store_true", help="print the cases and end")
    options = parser.parse_args(arguments)
    return options, models.chosen(options.only)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show, write; the exit code is 1 if a case fails."""
    options, chosen = _chosen(arguments)
    if options.names:
        print("\n".join(case.title for case in chosen))
        return 0
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows, failed, begun = list[Row](), 0, time.monotonic()
    for case in chosen:
        if time.monotonic() - begun > options.seconds:
            break
        try:
            rows.append(measured(case, options.compiled, options.launched, options.kernels))
            print(f"{case.title}: {rows[-1]['ms']:.3f} ms", file=sys.stderr, flush=True)
        except Exception as error:  # noqa: BLE001 - the other rows are measured all the same
            failed += 1
            traceback.print_exception(error)
        if options.json:
            write(options.json, {"models": rows})
    for row in rows if options.kernels else ():
        print(listing(row, options.kernels))
    print(report(rows, torch.cuda.get_device_name(0)))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
