"""Native products and convolutions beside OpenBLAS and the peak of one core.

    OPENBLAS_NUM_THREADS=1 python bench/native_products.py
    python bench/native_products.py --machine avx2 --only convolutions

The peak is that of a loop of independent multiply-adds. Weights are packed beforehand. OpenBLAS
does the products (of a convolution: that of its windows, already gathered) in the same run: best of
interleaved repetitions, in CPU time of the thread.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench.support.table import Row, table
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, POINTER, Value
from compiler.codegen.native.machine import MACHINES, Machine
from compiler.codegen.native.products import Convolution, Steps, bias, convolution, matmul
from compiler.ir.windows import StaticWindow
from tests.support.compiled_kernels import load

PRODUCTS = {
    "BERT 128 tokens, attention": (128, 768, 768),
    "BERT 128 tokens, wide": (128, 768, 3072),
    "BERT 128 tokens, narrow": (128, 3072, 768),
    "BERT 384 tokens, attention": (384, 768, 768),
    "BERT 384 tokens, wide": (384, 768, 3072),
    "BERT 384 tokens, narrow": (384, 3072, 768),
    "1000 cubed": (1000, 1000, 1000),
    "classifier, one image": (1, 2048, 1000),
    "LeNet, batch 64": (64, 784, 128),
    "one output, batch 64": (64, 512, 1),
}
"""Rows, steps and columns."""

LAYERS = (
    (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1),
    (512, 14, 512, 3, 2), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (128, 28, 512, 1, 1),
    (512, 28, 128, 1, 1), (256, 14, 1024, 1, 1), (1024, 14, 256, 1, 1), (512, 7, 2048, 1, 1),
    (2048, 7, 512, 1, 1), (256, 56, 512, 1, 2), (96, 52, 1, 5, 1),
)  # fmt: skip
"""Of ResNet-50, and of one filter: channels, pixels of an edge, filters, kernel, stride."""

COLUMNS = {
    "what": "", "sizes": "", "microseconds": ",.0f", "GFLOP/s": ".0f", "of peak": ".2f",
    "÷ OpenBLAS": ".2f",
}  # fmt: skip

Run = Callable[[], Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", choices=MACHINES, default="avx512")
    parser.add_argument("--only", choices=("products", "convolutions"))
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row")
    options = parser.parse_args(arguments)
    machine = MACHINES[options.machine]
    peak = _peak(machine)
    rows: list[Row] = []
    if options.only != "convolutions":
        rows += _products(machine, peak, options.seconds)
    if options.only != "products":
        rows += _convolutions(machine, peak, options.seconds)
    print(table(f"Native products, {options.machine}, peak {peak:.0f} GFLOP/s", rows, COLUMNS))
    return 0


def _products(machine: Machine, peak: float, seconds: float) -> Iterator[Row]:
    for name, (m, k, n) in PRODUCTS.items():
        a, b, out = _numbers(m, k), _numbers(k, n), _numbers(m, n)
        steps = matmul(machine, F32, (), m, k, n, epilogue=bias(F32, 2), constant=True)
        ours = bound(steps, machine, {"a": a, "b": b, "out": out, "bias": _numbers(n)})
        times = best([ours, _blas(a, b)], seconds)
        yield _row(name, f"{m}×{k}×{n}", 2 * m * k * n, times, peak)


def _convolutions(machine: Machine, peak: float, seconds: float) -> Iterator[Row]:
    for channels, edge, filters, kernel, stride in LAYERS:
        window = StaticWindow.fitting(edge, kernel, stride, 1, kernel // 2, kernel // 2)
        conv = Convolution(1, channels, filters, (window,) * 2, filters_last=True)
        pixels, depth = (edge // stride) ** 2, channels * kernel**2
        steps = convolution(machine, F32, conv, epilogue=bias(F32, 4), constant=True)
        arrays = {
            "input": _numbers(edge, edge, channels), "filter": _numbers(depth, filters),
            "out": _numbers(pixels, filters), "bias": _numbers(filters),
        }  # fmt: skip
        peer = _blas(_numbers(pixels, depth), arrays["filter"])
        times = best([bound(steps, machine, arrays), peer], seconds)
        name = f"{kernel}×{kernel}" + f" every {stride}" * (stride > 1)
        sizes = f"{channels} of {edge}² to {filters}"
        yield _row(name, sizes, 2 * pixels * depth * filters, times, peak)


def _row(what: str, sizes: str, flops: int, times: Sequence[float], peak: float) -> Row:
    speed = flops / times[0] / 1e9
    return {
        "what": what, "sizes": sizes, "microseconds": times[0] * 1e6, "GFLOP/s": speed,
        "of peak": speed / peak, "÷ OpenBLAS": times[0] / times[1],
    }  # fmt: skip


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _blas(a: np.ndarray, b: np.ndarray) -> Run:
    out = np.empty((len(a), b.shape[1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


def bound(steps: Steps, machine: Machine, arrays: Mapping[str, np.ndarray]) -> Run:
    """The calls of a step on arrays, after what prepares it has run."""
    scratch = {name: np.zeros(int(str(size)), np.float32) for name, size in steps.scratch.items()}
    operands = {**arrays, **scratch}
    runs: list[tuple[Any, Any, int]] = []
    for call in (*steps.prepare, *steps.calls):
        values = [
            operands[argument].ctypes.data if isinstance(argument, str) else argument
            for argument in call.arguments
        ]
        slots = (ctypes.c_int64 * len(values))(*values)
        runs.append((load(call.kernel, machine), slots, int(str(call.kernel.units))))
    for function, slots, units in runs[: len(steps.prepare)]:
        function(ctypes.addressof(slots), 0, units)
    calls = [
        (kernel, ctypes.addressof(slots), units)
        for kernel, slots, units in runs[len(steps.prepare) :]
    ]

    def run() -> None:
        for function, slots, units in calls:
            function(slots, 0, units)

    run.held = operands, runs  # type: ignore[attr-defined]  # what the addresses point to
    return run


def best(runs: Sequence[Run], seconds: float, rounds: int = 5) -> list[float]:
    """The least time of each, in seconds of the thread, in interleaved rounds."""
    least = [float("inf")] * len(runs)
    for _ in range(rounds):
        for place, run in enumerate(runs):
            end = time.thread_time() + seconds / rounds
            while (start := time.thread_time()) < end:
                run()
                least[place] = min(least[place], time.thread_time() - start)
    return least


def _peak(machine: Machine, chains: int = 12) -> float:
    """GFLOP/s of independent multiply-adds."""
    function, (number,), first, last = entry("peak", [POINTER])
    type = machine.vector(F32)
    factor = function.constant(type, 0.5)

    def body(_: Value, held: list[Value]) -> list[Value]:
        return [function.fma(value, factor, value) for value in held]

    starts = [function.constant(type, index + 1.0) for index in range(chains)]
    for total in function.loop(first, last, 1, body, starts):
        function.store(total, number)
    run = load(NativeKernel([function], 1), machine)
    out = np.zeros(machine.lanes(F32), np.float32)
    slots, turns = (ctypes.c_int64 * 1)(out.ctypes.data), 200_000
    time_ = best([lambda: run(ctypes.addressof(slots), 0, turns)], 0.2)[0]
    return turns * chains * 2 * machine.lanes(F32) / time_ / 1e9


if __name__ == "__main__":
    sys.exit(main())
