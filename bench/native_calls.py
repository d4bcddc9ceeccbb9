"""Cost of calling native code: an empty sequence, a feed, a command, sharing a command; sequences
on one thread and on two while other processes compute; and loading an object file.

Calls are timed by `thread_time_ns`, minima of many repetitions. Sequences on one and two threads
alternate, by wall time; the competing processes do nothing but count. An object is loaded by us and
by llvmlite, each in fresh processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.table import Row, goal, table
from compiler.codegen.native.host import detected
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import F32, POINTER, Value
from compiler.codegen.native.machine import Machine
from runtime.native.build import build
from runtime.native.sequence import NativeCode
from runtime.native.threads import available, pool

COMMANDS, UNITS = 50, 32
"""Commands of the sequences that are shared, and the units of each."""
ROUNDS = 400
LARGE = 1 << 30
"""Work of a command that is always shared."""
COLUMNS = {
    "competitors": "d",
    "quantile": "",
    "1 thread µs": ".0f",
    "2 threads µs": ".0f",
    "÷": ".2f",
}
QUANTILES = (0.0, 0.1, 0.5, 0.9)


def arithmetic(machine: Machine, steps: int) -> NativeKernel:
    """y[u] = a vector after `steps` rounds of eight multiply-adds; units are vectors."""
    function, (y,), first, last = entry(f"arithmetic_{steps}", [POINTER])
    vector = machine.vector(F32)
    half = function.constant(vector, 0.5)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        def step(_: Value, values: list[Value]) -> list[Value]:
            return [function.fma(value, half, half) for value in values]

        ones = [function.constant(vector, 1.0 + place) for place in range(8)]
        values = function.loop(0, steps, 1, step, ones)
        total = values[0]
        for value in values[1:]:
            total = function.add(total, value)
        function.store(total, function.address(y, number, machine.vector_bytes))
        return []

    function.loop_if_any(first, last, 1, unit)
    return NativeKernel([function], 1)


def fastest(call: Callable[[], object], calls: int, rounds: int = 50) -> float:
    """The least nanoseconds of a call, among rounds of many."""
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.thread_time_ns() - start) / calls)
    return best


def call_costs(machine: Machine) -> Iterator[Row]:
    """A row for each part of a call, in nanoseconds."""
    kernel = arithmetic(machine, 1)
    native = NativeCode({kernel.name: kernel.text()}, threads=1)
    y = np.empty((64, machine.vector_bytes), np.uint8)
    feeds = [(kernel.name, (native.feed(n, "uint8"),), 1) for n in range(8)]
    one = fastest(native([(kernel.name, (y,), 1)]), 1000)
    many = fastest(native([(kernel.name, (y,), 1)] * 1000), 10)
    feed_kernels, fixed = native(feeds), fastest(native([(kernel.name, (y,), 1)] * 8), 1000)
    yield {"what": "call of a sequence of one command", "ns": one}
    yield {"what": "each feed", "ns": (fastest(lambda: feed_kernels(*[y] * 8), 1000) - fixed) / 8}
    yield {"what": "each command, with its kernel", "ns": many / 1000}
    if available() > 1:
        yield {"what": "each shared command", "ns": shared_cost(machine) - many / 1000}


def shared_cost(machine: Machine) -> float:
    """The least nanoseconds of a tiny command that is shared with a worker that is awake."""
    kernel = arithmetic(machine, 1)
    native = NativeCode({kernel.name: kernel.text()}, threads=2)
    y = np.empty((2, machine.vector_bytes), np.uint8)
    run = native([(kernel.name, (y,), 2, LARGE)] * 100)
    best = float("inf")
    for _ in range(3000):
        before, start = pool().steps, time.perf_counter_ns()
        run()
        if pool().steps - before == 100:
            best = min(best, (time.perf_counter_ns() - start) / 100)
    return best


LOAD = """
import sys, time
from pathlib import Path
import runtime.native.memory
data, function = Path(sys.argv[1]).read_bytes(), sys.argv[2]
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = resident()
start = time.process_time()
if sys.argv[3] == "ours":
    code = runtime.native.memory.load({"kernel": data}, {"kernel": [function]})
else:
    from runtime.native.build import link
    code = link([data], [function])
print(time.process_time() - start, resident() - before)
"""
"""Loads an object file; prints the seconds of CPU time and the bytes of memory that it takes."""


def load_costs(machine: Machine, rounds: int = 5) -> Iterator[Row]:
    """A row for each loader: the least CPU time and memory of loading one object."""
    kernel = arithmetic(machine, 1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        path.write_bytes(build({kernel.name: kernel.text()}, machine)[kernel.name])
        for loader in ("ours", "llvmlite"):
            command = [sys.executable, "-c", LOAD, str(path), kernel.name, loader]
            runs = [subprocess.check_output(command, text=True).split() for _ in range(rounds)]
            least = [min(map(float, column)) for column in zip(*runs, strict=True)]
            yield {"loader": loader, "ms": least[0] * 1e3, "MB": least[1] / 2**20}


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Run processes that compute forever."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def beside(machine: Machine, count: int, rounds: int) -> Iterator[Row]:
    """Rows of times of a sequence on one thread and on two, beside `count` processes."""
    kernel = arithmetic(machine, 300)
    codes = [NativeCode({kernel.name: kernel.text()}, threads=threads) for threads in (1, 2)]
    y = np.empty((UNITS, machine.vector_bytes), np.uint8)
    runs = [code([(kernel.name, (y,), UNITS, LARGE)] * COMMANDS) for code in codes]
    times: tuple[list[float], list[float]] = ([], [])
    with competitors(count):
        for _ in range(rounds):
            for run, spent in zip(runs, times, strict=True):
                start = time.perf_counter_ns()
                run()
                spent.append((time.perf_counter_ns() - start) / 1e3)
    for quantile in QUANTILES:
        one, two = (float(np.quantile(samples, quantile)) for samples in times)
        yield _compared(count, f"{quantile:.0%}", one, two)
    yield _compared(count, "mean", float(np.mean(times[0])), float(np.mean(times[1])))


def _compared(count: int, quantile: str, one: float, two: float) -> Row:
    row = {"competitors": count, "quantile": quantile, "1 thread µs": one, "2 threads µs": two}
    return row | {"÷": two / one}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--competitors", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    machine = detected()
    if machine is None:
        sys.exit("there is no native code for this CPU")
    print(table(f"Calls, {machine.name}", [*call_costs(machine)], {"what": "", "ns": ".1f"}))
    loading = {"loader": "", "ms": ".1f", "MB": ".1f"}
    print(table("Loading an object file in a new process", [*load_costs(machine)], loading))
    if available() < 2:
        sys.exit("one thread may run here: nothing is shared")
    if not arguments.competitors:
        return
    rows = [row for n in arguments.competitors for row in beside(machine, n, arguments.rounds)]
    print(table(f"{COMMANDS} commands on one thread and on two", rows, COLUMNS))
    worst = max(row["÷"] for row in rows if row["quantile"] == "mean")
    print(goal(f"two threads ÷ one: {worst:.2f} in the mean", worst <= 1.1, "≤ 1.1"))


if __name__ == "__main__":
    main()
