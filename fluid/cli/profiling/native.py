"""Native code of `fluid inspect`: assembly, times of steps, and what this CPU reaches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from compiler.codegen.module import Module, Tensor
from compiler.codegen.native.limit_kernels import BLOCK, arithmetic, copying
from compiler.codegen.native.machine import MACHINES
from compiler.debugging.explanation import Study
from compiler.ir.dims import evaluate
from compiler.ir.types import Array
from compiler.report.native_code import CpuLimits, NativeReport
from compiler.support.text_files import write_text
from fluid.cli.model import CommandError
from runtime.loader import load
from runtime.native.build import assembly
from runtime.native.sequence import NativeCode
from runtime.profiler import SpanRecorder

__all__ = ["cpu_limits", "native_report", "random_array", "step_seconds", "write_kernels"]

LONGEST = 100
"""Most characters of a kernel's name in the name of its file."""

WARM_UPS, RUNS, PATIENCE = 2, 30, 1.0
"""Runs before times are kept, the most that are kept, the seconds after which no more begin."""
HELD = (1 << 18, 1 << 24, 1 << 27)
"""Bytes of the two arrays whose copying is measured: from those in a core's cache to none."""
UNITS, ROUNDS, FEWEST, SECONDS = 256, 50, 4, 0.1
"""Units of arithmetic, the most and the fewest repetitions of a measurement, and the seconds after
which no more begin."""


def native_report(seen: Study, profile: bool, assembled: bool) -> NativeReport:
    """The steps of a native module; with `profile` their times on random feeds and the limits of
    this CPU, with `assembled` the assembly of the kernels.

    Raises CommandError for a profile of a program with collective ops.
    """
    module = seen.module
    machine = MACHINES[module.machine]
    texts: dict[str, str] = {}
    if assembled:
        texts = {name: assembly(text, machine) for name, text in module.kernels_ir.items()}
    if not profile:
        return seen.native(assembly=texts)
    return seen.native(step_seconds(seen), cpu_limits(module.machine), texts)


def write_kernels(report: NativeReport, folder: Path) -> None:
    """Write the LLVM IR and the assembly of each kernel to files, numbered as in the module."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, text) in enumerate(report.kernels.items()):
        stem = f"{number:03d}-{name[:LONGEST]}"
        write_text(folder / f"{stem}.ll", text)
        write_text(folder / f"{stem}.s", report.assembly[name])


def step_seconds(seen: Study) -> dict[tuple[str, ...], float]:
    """The median seconds of each step in runs on random feeds, by its ops."""
    recorder, generator = SpanRecorder(), np.random.default_rng(0)
    module, names = recorder.tap(seen.module)
    if module.collectives:
        raise CommandError("--profile runs one process: the program has collective ops")
    params = {param.name: random_array(seen, param, generator) for param in module.params}
    feeds = {feed.name: random_array(seen, feed, generator) for feed in module.feeds}
    _repeat(module, params, feeds, names, recorder)
    times: dict[tuple[str, ...], list[int]] = {}
    for span in recorder.spans:
        times.setdefault(span.ops, []).append(span.stop - span.start)
    return {ops: median(durations) / 1e9 for ops, durations in times.items()}


def _repeat(
    module: Module, params: dict[str, Array], feeds: dict[str, Array],
    names: Mapping[str, object], recorder: SpanRecorder,
) -> None:  # fmt: skip
    run = load(module, params=params, names=names)
    for _ in range(WARM_UPS):
        run(feeds)
    recorder.clear()
    until, runs = time.perf_counter() + PATIENCE, 0
    while runs < RUNS and (not runs or time.perf_counter() < until):
        run(feeds)
        runs += 1


def random_array(seen: Study, tensor: Tensor, generator: np.random.Generator) -> Array:
    """The array passed in for a name, or random numbers: integers are 0, floats positive."""
    if tensor.name in seen.params:
        return seen.params[tensor.name]
    shape = [evaluate(size, seen.sizes) for size in tensor.shape]
    dtype = np.dtype(tensor.dtype)
    if dtype.kind not in "fV":
        return np.zeros(shape, dtype)
    return generator.uniform(0.1, 1.0, shape).astype(dtype)


def cpu_limits(machine: str) -> CpuLimits:
    """Measure, in a second, what the native code of this CPU reaches with all threads."""
    level = MACHINES[machine]
    sums, copy = arithmetic(level), copying(level)
    code = NativeCode({kernel.name: kernel.text() for kernel in (sums, copy)}, machine)
    out = np.empty(UNITS * level.vector_bytes, np.uint8)
    flops = int(str(sums.flops)) * UNITS
    run = code([(sums.name, (out,), UNITS, flops, out.nbytes)])
    rates = {nbytes: nbytes / _best(_copy(code, nbytes)) for nbytes in HELD}
    return CpuLimits(code.threads, flops / _best(run), rates)


def _copy(code: NativeCode, held: int) -> Callable[[], None]:
    """Copies one half of so many bytes to the other."""
    x, y = (np.ones(held // 2, np.uint8) for _ in range(2))
    return code([("copying", (x, y), held // 2 // BLOCK, 0, held)])


def _best(run: Callable[[], None]) -> float:
    """The least seconds of a run."""
    best, until = float("inf"), time.perf_counter() + SECONDS
    for number in range(ROUNDS):
        if number >= FEWEST and time.perf_counter() > until:
            break
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
