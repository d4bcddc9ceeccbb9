"""Whole models on a GPU: our steps beside torch eager and torch.compile.

    python bench/gpu_models.py                       # every row
    python bench/gpu_models.py --only resnet50 --kernels 12
    python bench/gpu_models.py --compiled            # also torch.compile, which is slow to begin

A step copies its feed from the host, runs, and returns the output or the loss as a NumPy array, in
torch as well; the device is idle when the next one begins. Times are medians of alternating rounds,
by the host's clock. `launched ms` is a step without a CUDA graph; `kernels ms` are the times that
kernels and copies take on the device, by torch's profiler; `first s` is compiling and the first
step. `--kernels N` lists the N kernels of a model that take the most time, and torch's.
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
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import fluid
from bench.device import torch_models
from bench.kernels import write
from bench.support.table import Row, table
from bench.versus.saved import save
from fluid.cli.main import main as command
from fluid.contrib.mixed_precision import decorate
from tests.support.nets import bert, steps, timed, zoo

Step = Callable[[], Any]
IMAGES = {"image": 224, "classes": 1000}
COLUMNS = {
    "model": "", "work": "", "dtype": "", "batch": "d", "ms": ".2f", "launched ms": ".2f",
    "eager ms": ".2f", "compiled ms": ".2f", "ours ÷ eager": ".2f", "ours ÷ compiled": ".2f",
    "kernels ms": ".2f", "torch kernels ms": ".2f", "first s": ".1f",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model, what is done with it, in which dtype, and with how many samples a step."""

    model: str
    work: str
    dtype: str
    batch: int

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.model} {self.work} {self.dtype} {self.batch}"


CASES = (
    Case("resnet50", "inference", "bf16", 1), Case("resnet50", "inference", "bf16", 64),
    Case("resnet50", "inference", "fp32", 64), Case("bert", "inference", "bf16", 1),
    Case("bert", "inference", "bf16", 32), Case("resnet50", "training", "bf16", 64),
    Case("resnet50", "training", "fp32", 64), Case("lenet", "training", "fp32", 64),
    Case("resnet18", "training", "fp32", 8), Case("encoder", "training", "fp32", 16),
    Case("lstm", "training", "fp32", 16), Case("ctr_million", "training", "fp32", 64),
)  # fmt: skip


def fed(case: Case) -> dict[str, np.ndarray]:
    """A batch of a case."""
    random = np.random.RandomState(0)
    if case.model == "bert":
        return bert.draw(random, case.batch)
    if case.model == "resnet50":
        arrays = zoo.draw("resnet50", random, case.batch, **IMAGES)
        return arrays if case.work == "training" else {"img": arrays["img"]}
    return dict(next(steps.drawn(case.model)))


def predicts(case: Case, feed: Mapping[str, np.ndarray], folder: Path) -> Step:
    """A step of a package that `fluid compile` wrote for this GPU."""
    major, minor = torch.cuda.get_device_capability()
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        if case.model == "bert":
            out = bert.encoder(fluid)
        else:
            recorded = zoo.build(fluid, case.model, train=False, **IMAGES)
            main, startup, block = recorded.test, recorded.startup, recorded.test.block(0)
            (last,) = (op for op in block.ops if op.type == "softmax_with_cross_entropy")
            out = block.var(last.input("Logits")[0])
    saved = save(folder / "saved", main, startup, feed, [out]).folder / "model"
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
    if case.model == "resnet50":
        plain = zoo.MODELS["resnet50"].optimizer
        mixed = lambda module: decorate(plain(module), dtype="bfloat16")  # noqa: E731
        optimizer = mixed if case.dtype == "bf16" else None
        network = zoo.build(fluid, "resnet50", optimizer=optimizer, **IMAGES)
    else:
        network = steps.model(fluid, case.model)
    executor, scope = fluid.Executor(fluid.CUDAPlace(0)), fluid.Scope()
    executor.run(network.startup, scope=scope)
    inputs = timed.fed(fluid, feed)
    return lambda: executor.run(network.main, inputs, [network.loss], scope=scope)[0]


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
    feed, begun = fed(case), time.monotonic()
    with TemporaryDirectory(prefix="models-") as folder:
        runs = {"ours": _ours(case, feed, Path(folder, "captured"), True)}
        runs["ours"]()
        first = time.monotonic() - begun
        if launched:
            runs["launched"] = _ours(case, feed, Path(folder, "launched"), False)
        peer = torch_models.predicts if case.work == "inference" else torch_models.trains
        runs["eager"] = peer(case.model, case.dtype, feed, False)
        if compiled:
            runs["compiled"] = peer(case.model, case.dtype, feed, True)
        ms = milliseconds(runs)
        profile, theirs = kernels(runs["ours"]), kernels(runs["eager"])
    row: dict[str, Any] = {**vars(case), "ms": ms["ours"], "first s": first}
    row |= {f"{name} ms": median_ms for name, median_ms in ms.items() if name != "ours"}
    row |= {f"ours ÷ {name}": ms["ours"] / ms[name] for name in ("eager", "compiled") if name in ms}
    row |= {"kernels ms": sum(spent for *_, spent in profile)}
    row |= {"torch kernels ms": sum(spent for *_, spent in theirs)}
    return row | {"profile": profile[: max(shown, 60)], "theirs": theirs[: max(shown, 20)]}


def _ours(case: Case, feed: Mapping[str, np.ndarray], folder: Path, graph: bool) -> Step:
    """A step of ours, as a CUDA graph or as launches."""
    os.environ["FLUID_CUDA_GRAPH"] = str(int(graph))
    return trains(case, feed) if case.work == "training" else predicts(case, feed, folder)


def listing(row: Row, shown: int) -> str:
    """The kernels of a row that take the most time."""
    lines = [f"{row['model']} {row['work']} {row['dtype']}, batch {row['batch']}: our kernels"]
    for name, launches, ms in row["profile"][:shown]:
        lines.append(f"  {ms:8.3f} ms  {launches:6.1f} ×  {name[:90]}")
    lines.append(f"  torch's, {row['torch kernels ms']:.3f} ms in all")
    for name, launches, ms in row["theirs"][:shown]:
        lines.append(f"  {ms:8.3f} ms  {launches:6.1f} ×  {name[:90]}")
    return "\n".join(lines)


def report(rows: Sequence[Row], device: str) -> str:
    """The table."""
    return table(f"Models on {device}", rows, COLUMNS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show, write; the exit code is 1 if a case fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with a word")
    parser.add_argument("--compiled", action="store_true", help="also measure torch.compile")
    parser.add_argument("--launched", action="store_true", help="also without a CUDA graph")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list N of each model")
    parser.add_argument("--seconds", type=float, default=600, help="after which no case begins")
    parser.add_argument("--json", type=Path, help="write rows to this file after each")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows, failed, begun = list[Row](), 0, time.monotonic()
    for case in CASES:
        if options.only and not any(word in case.title for word in options.only):
            continue
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
